"""Gated linear units, rotary positions, grouped and sloped attention, transformer layers."""

import numpy as np
import torch
import torch.nn.functional as F

from draw import Call, case
from torch_ops import GATES, buckets_of, slopes_of

@case("glu")
def glu(d):
    s = d.shape(1, 4)
    axis = d.axis(s)
    s[axis] *= 2
    return Call([d.normal(s)], {"axis": axis})


@case("glu_linear")
def glu_linear(d):
    k, n, kind, both = d.int(1, 20), d.int(1, 40), d.pick(sorted(GATES)), d.flag()
    x = d.normal([*d.shape(0, 3), k])
    w = [d.normal([2 * n, k]), None] if both else [d.normal([n, k]), d.normal([n, k])]
    b = [d.normal([len(v)]) if v is not None and d.flag(0.6) else None for v in w]
    return Call([x, w[0], b[0], w[1], b[1]], {"kind": kind})


def rotated(x, heads, positions, size=0, base=0.0, offset=0, interleaved=False):
    """x [B,N,H*D] as in transformers' Llama (halves) and GPT-J (interleaved), in f64."""
    x = x.unflatten(-1, (heads, -1))
    size = size or x.shape[-1]
    part, rest = x[..., :size], x[..., size:]
    frequency = (base or 1e4) ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    p = torch.arange(x.shape[1]) if positions is None else positions
    t = ((p + offset).double()[..., None] * frequency)[..., None, :]
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        turned = torch.stack([a * t.cos() - b * t.sin(), b * t.cos() + a * t.sin()], -1).flatten(-2)
    else:
        a, b = part.chunk(2, -1)
        turned = torch.cat([a * t.cos() - b * t.sin(), b * t.cos() + a * t.sin()], -1)
    return torch.cat([turned, rest], -1).flatten(2)


@case("rotary")
def rotary(d):
    heads, half, rest = d.int(1, 4), d.int(1, 20), d.pick([0, 0, d.int(1, 9)])
    b, n = d.int(0, 3), d.int(0 if d.flag(0.05) else 1, 20)
    options = {"heads": heads, "interleaved": d.flag()}
    if rest:
        options["size"] = 2 * half
    if d.flag(0.3):
        options["base"] = d.real(2, 1e6)
    if d.flag(0.3):
        options["offset"] = d.int(0, 1000000)
    positions = d.pick([None, [n], [b, n]])
    if positions is not None:
        positions = d.ints(positions, d.pick([10, 1000000]))
    x = d.normal([b, n, heads * (2 * half + rest)])
    return Call([x, positions], options, lambda x, p=None: rotated(x, positions=p, **options))


def sdpa(q, k, v, heads, kv_heads, add):
    q, k, v = (x.unflatten(-1, (h, -1)).transpose(1, 2)
               for x, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    y = F.scaled_dot_product_attention(q, k, v, add, enable_gqa=True)
    return y.transpose(1, 2).flatten(2)


@case("grouped_attention")
def grouped_attention(d):
    kv, size, b = d.int(1, 3), d.int(1, 12), d.int(1, 3)
    heads = kv * d.int(1, 4)
    causal = d.flag(0.4)
    n = d.int(1, 40)
    s = n + d.int(0, 9) if causal else d.int(1, 40)
    room = s + d.pick([0, 0, d.int(1, 9)])
    how = d.pick(["none", "alibi", "slopes", "bias"])
    bias = (d.normal([heads]) if how == "slopes"
            else d.normal([heads, n, s]) if how == "bias" else None)
    mask = d.mask([b, s], 0.8) if d.flag(0.3) and not causal else None
    if mask is not None:
        mask[:, 0] = 1
    options = {"heads": heads, "causal": causal, "alibi": how == "alibi"}
    if kv != heads or d.flag():
        options["kv_heads"] = kv
    if room != s:
        options["keys"] = s
    return Call([d.normal([b, n, heads * size]), *(d.normal([b, room, kv * size]) for _ in "kv"),
                 mask, bias],
                options)


@case("lsh_attention")
def lsh_attention(d):
    b, heads, size, rounds, chunk = d.int(1, 3), d.int(1, 3), d.int(1, 9), d.int(1, 3), d.int(1, 8)
    n = d.int(1, chunk) if d.flag(0.2) else chunk * d.int(2, 9)
    options = {"heads": heads, "chunk": chunk, "rounds": rounds}
    if d.flag():
        factors = [2 * d.int(1, 5) for _ in range(d.int(1, 2))]
        options["buckets"] = factors + [0] * (2 - len(factors))
    else:
        longest = options["longest"] = n * d.int(1, 40)
        factors = buckets_of(n, chunk, longest)
    rotations = d.normal([heads, size, rounds, sum(factors) // 2]) if n > chunk else None
    mask = d.mask([b, n], 0.7) if d.flag() else None
    return Call([d.normal([b, n, heads * size]), d.normal([b, n, heads * size]), rotations, mask],
                options)


@case("linear_attention")
def linear_attention(d):
    b, heads, size, n, s = d.int(1, 3), d.int(1, 3), d.int(1, 9), d.int(1, 40), d.int(1, 80)
    kind = d.pick(["elu", "positive", "relu"])
    options = {"heads": heads, "features": kind}
    if d.flag(0.3):
        options["scale"] = d.real(0.1, 0.8)
    if kind == "elu":
        options["normalise"] = d.flag()
    elif d.flag(0.3):
        options["eps"] = d.real(1e-5, 0.1)
    projection = None if kind == "elu" else d.normal([d.int(1, 30), size])
    mask = d.mask([b, s], 0.7) if d.flag() else None
    if mask is not None:
        mask[:, 0] = 1
    return Call([d.normal([b, n, heads * size]), *(d.normal([b, s, heads * size]) for _ in "kv"),
                 projection, mask], options)


@case("chunk_project_kv")
def chunk_project_kv(d):
    heads, size, rank, chunk = d.int(1, 4), d.int(1, 12), d.int(1, 9), d.pick([1, 4, d.int(1, 90)])
    b, n = d.int(1, 3), chunk * d.int(1, 4)
    mask = d.mask([b, n], 0.7) if d.flag() else None
    if mask is not None:
        mask[:, ::chunk] = 1
    return Call([d.normal([b, n, heads * size]), d.normal([b, n, heads * size]),
                 d.normal([b, n, heads * rank]), mask],
                {"heads": heads, "chunk": chunk, "rank": rank})


@case("window_attention_2d")
def window_attention_2d(d):
    """A sequence with low-rank keys and masks, as full attention with a mask of pairs."""
    heads, size, b, n = d.int(1, 3), d.int(1, 12), d.int(1, 3), d.int(1, 60)
    window, rank = d.pick([0, 1, d.int(1, 20)]), d.int(0, 9)
    if window == 0 and rank == 0:
        rank = 1
    halo = d.int(0, window)
    mask = d.mask([b, n], 0.7) if d.flag() else None
    low_mask = d.mask([b, rank], 0.7) if d.flag() and rank else None
    low = [d.normal([b, rank, heads * size]) if rank else None for _ in "kv"]

    def f(q, k, v, low_k=None, low_v=None, mask=None, low_mask=None):
        i, j = torch.arange(n)[:, None], torch.arange(n)
        first = i // max(window, 1) * window
        seen = ((j >= first - halo) & (j < first + window + halo) & (window > 0)).expand(b, n, n)
        if mask is not None:
            seen = seen & (mask[:, None] > 0)
        if low_k is not None:
            near = (torch.ones(b, n, rank, dtype=bool) if low_mask is None
                    else (low_mask[:, None] > 0).expand(b, n, rank))
            k, v = torch.cat([low_k, k], 1), torch.cat([low_v, v], 1)
            seen = torch.cat([near, seen], 2)
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
        s = (q @ k.transpose(-2, -1) / size ** 0.5).masked_fill(~seen[:, None], -torch.inf)
        blind = ~seen.any(2)[:, None, :, None]  # queries without keys, and hidden ones, give zeros
        if mask is not None:
            blind = blind | (mask[:, None, :, None] == 0)
        y = s.masked_fill(blind, 0.0).softmax(-1) @ v
        return y.masked_fill(blind, 0.0).transpose(1, 2).flatten(2)
    return Call([*(d.normal([b, n, heads * size]) for _ in "qkv"), *low, mask, low_mask],
                {"heads": heads, "window": window, "halo": halo}, f)


class Documents:
    """Packed documents: their rows, offsets, and the rows of each in a tensor."""

    def __init__(self, d, n, least=0):
        self.rows = ([d.pick([least, 1, d.int(1, 12), d.int(1, 70)]) for _ in range(n - 1)]
                     + [d.int(1, 9)])
        offset = np.concatenate([[0], np.cumsum(self.rows)])
        self.offset = offset.astype(d.pick([np.int32, np.int64]))
        self.total, self.longest = sum(self.rows), max(self.rows) + d.int(0, 3)

    def of(self, x):
        return x.split(self.rows)


def attend(q, k, v, heads, kv_heads=None, seen=None):
    """Attention of one document, [N,H*D] to [S,G*D]; queries that see nothing give zeros."""
    q, k, v = (x.unflatten(-1, (h, -1)).transpose(0, 1)
               for x, h in ((q, heads), (k, kv_heads or heads), (v, kv_heads or heads)))
    k, v = (x.repeat_interleave(heads // len(x), 0) for x in (k, v))
    s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    seen = torch.ones(s.shape[-2:], dtype=bool) if seen is None else seen
    blind = ~seen.any(-1, keepdim=True)
    p = s.masked_fill(~seen, -torch.inf).masked_fill(blind, 0.0).softmax(-1)
    y = p.masked_fill(blind, 0.0) @ v
    return y.transpose(0, 1).flatten(1)


@case("packed_attention")
def packed_attention(d):
    heads, size, n, causal = d.pick([1, 2, 4]), d.int(1, 12), d.int(1, 5), d.flag()
    kv_heads = d.pick([0, 1, heads])
    a = Documents(d, n)
    b = Documents(d, n) if d.flag() else a
    width = (kv_heads or heads) * size

    def f(q, k, v, *_):
        def one(q, k, v):
            i, j = torch.arange(len(q))[:, None], torch.arange(len(k))
            return attend(q, k, v, heads, kv_heads, j <= i + (len(k) - len(q)) if causal else None)
        return torch.cat([one(*x) for x in zip(a.of(q), b.of(k), b.of(v))])
    return Call([d.normal([a.total, heads * size]), *(d.normal([b.total, width]) for _ in "kv"),
                 a.offset, b.offset],
                {"heads": heads, "kv_heads": kv_heads, "causal": causal,
                 "longest": max(a.longest, b.longest)}, f)


@case("packed_window_attention")
def packed_window_attention(d):
    """tp_window_attention_2d of packed sequences."""
    heads, size, window, rank = d.int(1, 3), d.int(1, 12), d.pick([0, 1, d.int(1, 20)]), d.int(0, 9)
    if window == 0 and rank == 0:
        rank = 1
    n, halo = d.int(1, 5), d.int(0, window)
    a = Documents(d, n)
    low = [d.normal([n, rank, heads * size]) if rank else None for _ in "kv"]

    def f(q, k, v, *rest):
        low_k, low_v = rest[:2] if rank else (torch.zeros(n, 0, heads * size, dtype=q.dtype),) * 2

        def one(q, k, v, low_k, low_v):
            i, j = torch.arange(len(q))[:, None], torch.arange(len(q))
            first = i // max(window, 1) * window
            seen = (j >= first - halo) & (j < first + window + halo) & (window > 0)
            seen = torch.cat([torch.ones(len(q), rank, dtype=bool), seen], 1)
            return attend(q, torch.cat([low_k, k]), torch.cat([low_v, v]), heads, seen=seen)
        return torch.cat([one(*x) for x in zip(a.of(q), a.of(k), a.of(v), low_k, low_v)])
    return Call([*(d.normal([a.total, heads * size]) for _ in "qkv"), *low, a.offset],
                {"heads": heads, "window": window, "halo": halo, "longest": a.longest}, f)


@case("packed_project_kv")
def packed_project_kv(d):
    heads, size, rank = d.int(1, 4), d.int(1, 12), d.int(1, 9)
    a = Documents(d, d.int(1, 5), least=1)

    def f(k, v, scores, *_):
        def one(x, z):
            p = z.unflatten(-1, (heads, rank)).softmax(0)
            return torch.einsum("lhr,lhd->rhd", p, x.unflatten(-1, (heads, size))).flatten(1)
        return tuple(torch.stack([one(*t) for t in zip(a.of(x), a.of(scores))]) for x in (k, v))
    return Call([d.normal([a.total, heads * size]), d.normal([a.total, heads * size]),
                 d.normal([a.total, heads * rank]), a.offset],
                {"heads": heads, "rank": rank, "longest": a.longest}, f)


@case("packed_sum")
def packed_sum(d):
    a = Documents(d, d.int(1, 5))
    return Call([d.normal([a.total, *d.shape(0, 2)]), a.offset], {"longest": a.longest},
                lambda x, _: torch.stack([part.sum(0) for part in a.of(x)]))


@case("packed_prepend")
def packed_prepend(d):
    n, tail = d.int(1, 5), d.shape(0, 2)
    a = Documents(d, n)
    return Call([d.normal([n, *tail]), d.normal([a.total, *tail]), a.offset],
                {"longest": a.longest},
                lambda first, x, _: torch.cat([t for b, part in enumerate(a.of(x))
                                               for t in (first[b:b + 1], part)]))


def linear_params(d, name, n, k, bias=True):
    p = {f"m.{name}.weight": d.normal([n, k], k ** -0.5)}
    return {**p, f"m.{name}.bias": d.normal([n], 0.1)} if bias else p


def norm_params(d, name, n, bias=True):
    p = {f"m.{name}.weight": d.uniform([n], 0.5, 1.5)}
    return {**p, f"m.{name}.bias": d.normal([n], 0.1)} if bias else p


def attention_params(d, name, dim):
    return {k: v for part in ("q_proj", "k_proj", "v_proj", "out_proj")
            for k, v in linear_params(d, f"{name}.{part}", dim, dim).items()}


ATTENTION = {"self_attn": "self_attn", "encoder_attn": "multihead_attn"}


def torch_layer(kind, params, names, dim, hidden, heads, act, norm_after):
    """PyTorch's layer as a function of our parameters; names {ours: PyTorch's}: linears, norms."""
    layer = kind(dim, heads, hidden, 0.0, act, batch_first=True, norm_first=not norm_after,
                 dtype=torch.float64)
    theirs = {}
    for ours, name in ATTENTION.items():
        if f"m.{ours}.q_proj.weight" in params:
            for what in ("weight", "bias"):
                theirs[f"{name}.in_proj_{what}"] = torch.cat(
                    [params[f"m.{ours}.{p}_proj.{what}"] for p in "qkv"])
                theirs[f"{name}.out_proj.{what}"] = params[f"m.{ours}.out_proj.{what}"]
    for ours, name in names.items():
        for what in ("weight", "bias"):
            theirs[f"{name}.{what}"] = params[f"m.{ours}.{what}"]
    return lambda *x, **more: torch.func.functional_call(layer, theirs, x, more)


def drawn_layer(d):
    heads = d.int(1, 3)
    dim, hidden = heads * d.int(1, 3), d.int(1, 8)
    return {"dim": dim, "hidden": hidden, "heads": heads, "act": d.pick(["relu", "gelu"]),
            "norm_after": d.flag()}


@case("encoder_layer")
def encoder_layer(d):
    o = drawn_layer(d)
    if d.flag():
        return llama_layer(d, o)
    b, n = d.int(1, 2), d.int(1, 5)
    mask = d.mask([b, n], 0.7) if d.flag() else None
    if mask is not None:
        mask[:, 0] = 1
    params = {**attention_params(d, "self_attn", o["dim"]),
              **norm_params(d, "self_attn_layer_norm", o["dim"]),
              **linear_params(d, "fc1", o["hidden"], o["dim"]),
              **linear_params(d, "fc2", o["dim"], o["hidden"]),
              **norm_params(d, "final_layer_norm", o["dim"])}
    names = {"self_attn_layer_norm": "norm1", "fc1": "linear1", "fc2": "linear2",
             "final_layer_norm": "norm2"}

    def f(x, mask=None, params=None):
        hidden = None if mask is None else mask == 0
        layer = torch_layer(torch.nn.TransformerEncoderLayer, params, names, **o)
        return layer(x, src_key_padding_mask=hidden)
    return Call([d.normal([b, n, o["dim"]]), mask], o, f, params=params)


def llama_layer(d, o):
    """Causal, grouped heads, rotary positions, RMS norms, SwiGLU, no bias; QK norms or ALiBi."""
    kv, group, size = d.int(1, 2), d.int(1, 2), 2 * d.int(1, 3)
    heads, hidden, b, n = kv * group, o["hidden"], d.int(1, 2), d.int(1, 5)
    dim, kind, qk, alibi = heads * size, d.pick(sorted(GATES)), d.flag(), d.flag(0.3)
    params = {**linear_params(d, "self_attn.q_proj", dim, dim, False),
              **linear_params(d, "self_attn.k_proj", kv * size, dim, False),
              **linear_params(d, "self_attn.v_proj", kv * size, dim, False),
              **linear_params(d, "self_attn.out_proj", dim, dim, False),
              **norm_params(d, "self_attn_layer_norm", dim, False),
              **norm_params(d, "final_layer_norm", dim, False),
              **linear_params(d, "gate_proj", hidden, dim, False),
              **linear_params(d, "up_proj", hidden, dim, False),
              **linear_params(d, "down_proj", dim, hidden, False)}
    if qk:
        params |= {**norm_params(d, "self_attn.q_norm", size, False),
                   **norm_params(d, "self_attn.k_norm", size, False)}

    def f(x, params=None):
        w = {k[2:].removesuffix(".weight"): v for k, v in params.items()}
        h = F.rms_norm(x, [dim], w["self_attn_layer_norm"], 1e-5)
        q, k, v = (F.linear(h, w[f"self_attn.{p}_proj"]) for p in "qkv")
        if qk:
            q, k = (F.rms_norm(t.unflatten(-1, (-1, size)), [size], w[f"self_attn.{p}_norm"],
                               1e-6).flatten(2)
                    for t, p in ((q, "q"), (k, "k")))
        if not alibi:
            q, k = rotated(q, heads, None), rotated(k, kv, None)
        add = torch.zeros(heads, n, n, dtype=x.dtype)
        if alibi:
            distance = (torch.arange(n)[:, None] - torch.arange(n)).abs()
            add = add - torch.tensor(slopes_of(heads), dtype=x.dtype)[:, None, None] * distance
        add = add.masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf)
        x = x + F.linear(sdpa(q, k, v, heads, kv, add), w["self_attn.out_proj"])
        h = F.rms_norm(x, [dim], w["final_layer_norm"], 1e-5)
        return x + F.linear(GATES[kind](F.linear(h, w["gate_proj"])) * F.linear(h, w["up_proj"]),
                            w["down_proj"])
    options = {"dim": dim, "hidden": hidden, "heads": heads, "kv_heads": kv, "causal": True,
               "gated": True,
               "kind": kind, "rms": True, "bias_free": True, "rotary": not alibi, "alibi": alibi,
               "qk_norm": qk}
    return Call([d.normal([b, n, dim])], options, f, params=params)


@case("decoder_layer")
def decoder_layer(d):
    o = drawn_layer(d)
    dim, b, n, s = o["dim"], d.int(1, 2), d.int(1, 5), d.int(1, 5)
    mask = d.mask([b, s], 0.7) if d.flag() else None
    if mask is not None:
        mask[:, 0] = 1
    params = {**attention_params(d, "self_attn", dim),
              **norm_params(d, "self_attn_layer_norm", dim),
              **attention_params(d, "encoder_attn", dim),
              **norm_params(d, "encoder_attn_layer_norm", dim),
              **linear_params(d, "fc1", o["hidden"], dim),
              **linear_params(d, "fc2", dim, o["hidden"]),
              **norm_params(d, "final_layer_norm", dim)}
    names = {"self_attn_layer_norm": "norm1", "encoder_attn_layer_norm": "norm2", "fc1": "linear1",
             "fc2": "linear2", "final_layer_norm": "norm3"}

    def f(x, memory, mask=None, params=None):
        hidden = None if mask is None else mask == 0
        ahead = torch.nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64)
        return torch_layer(torch.nn.TransformerDecoderLayer, params, names, **o)(
            x, memory, tgt_mask=ahead, memory_key_padding_mask=hidden)
    return Call([d.normal([b, n, dim]), d.normal([b, s, dim]), mask], o, f, params=params)
