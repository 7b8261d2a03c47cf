"""The encoders of the Long Range Arena in plain PyTorch, for comparison in benchmarks.

Written from the papers' equations and the public description of the computation, vectorised and
without custom kernels. scaled_dot_product_attention is used wherever an attention, or a part of
one, is a softmax over the same keys for all queries of a head.

    lra_pytorch.py --check DIR              compare with the reference cases in DIR (attn_*, enc_*)
    lra_pytorch.py --bench NAME [options]   time a training step and print one JSON line; see MODELS
"""
import glob
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from reference_case import load_case, relative_error, stored_state
import training_step


def split(x, heads):
    """[B,n,h D] -> [B,h,n,D]"""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def hide(x, mask):
    """x [B,n,...] with zeros at padding; mask: [B,n] or None."""
    return x if mask is None else x * mask.view(*mask.shape, *[1] * (x.dim() - 2)).to(x.dtype)


def seen(mask):
    """The mask of keys for scaled_dot_product_attention."""
    return None if mask is None else mask[:, None, None, :]


def lowest(x):
    return torch.finfo(x.dtype).min


def mix(e, x):
    """e [h,k,n] times x [B,h,n,D], without a copy of e for each sample."""
    return torch.einsum("hkn,bhnd->bhkd", e, x)


def convolve(weight, v):
    """Depthwise along the tokens of v [B,h,n,D]; weight [h,1,k,1]."""
    return F.conv2d(v, weight, padding=(weight.shape[2] // 2, 0), groups=v.shape[1])


def filters(heads, size):
    conv = nn.Module()
    conv.weight = nn.Parameter(torch.zeros(heads, 1, size, 1))
    return conv


# ---- long-short attention ----


class LongShort(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, dim = c, c["dim"]
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(dim, dim))
        if c["dual_ln"]:
            self.dual_ln_l, self.dual_ln_s = nn.LayerNorm(dim), nn.LayerNorm(dim)
        else:
            self.dual_ln_l = self.dual_ln_s = nn.Identity()
        if c["rank"] and c["proj"] == "dynamic":
            self.dconv_fc = nn.Linear(dim, c["heads"] * c["rank"])
        elif c["rank"]:
            self.E = nn.Parameter(torch.randn(c["heads"], c["rank"], c["length"]) * 0.02)
        if c["conv"] > 0:
            self.conv = filters(c["heads"], c["conv"])

    def compress(self, x, k, v, mask):
        """The compressed k and v, [B,r,d] each."""
        if self.c["proj"] != "dynamic":
            return merge(mix(self.E, hide(k.transpose(1, 2), mask).transpose(1, 2))), merge(
                mix(self.E, hide(v.transpose(1, 2), mask).transpose(1, 2)))
        z = self.dconv_fc.weight @ x.mT + self.dconv_fc.bias[:, None]  # [B,h r,n]
        if mask is not None:
            z = z.masked_fill(~mask[:, None, :], lowest(z))
        p = z.softmax(-1).unflatten(1, (self.c["heads"], -1))
        return merge(p @ k), merge(p @ v)

    def tiles(self, x, w, e):
        """[B,h,n,D] -> the rows that each segment sees, [B,h,n/w,w+2e,D]."""
        return F.pad(x, (0, 0, e, e)).unfold(2, w + 2 * e, w).mT

    def window_logits(self, q, k, mask, w, e):
        b, h, n, d = q.shape
        if w == 1:  # three keys: sums of products instead of tiny matrices
            k = F.pad(k, (0, 0, 1, 1))
            s = torch.stack([(q * k[:, :, i : i + n]).sum(-1) for i in range(3)], -1)
        else:
            s = (q.unflatten(2, (-1, w)) @ self.tiles(k, w, e).mT).reshape(b, h, n, w + 2 * e)
        real = torch.ones(1, n, dtype=torch.bool, device=q.device) if mask is None else mask
        real = F.pad(real, (e, e)).unfold(1, w + 2 * e, w).repeat_interleave(w, 1)
        return s.masked_fill(~real[:, None], lowest(s))

    def window_values(self, p, v, w, e):
        b, h, n, _ = p.shape
        if w == 1:
            v = F.pad(v, (0, 0, 1, 1))
            return sum(p[..., i, None] * v[:, :, i : i + n] for i in range(3))
        return (p.unflatten(2, (-1, w)) @ self.tiles(v, w, e)).reshape(b, h, n, -1)

    def tokens(self, q, k, v, low_k, low_v, mask):
        """The outputs of the tokens [B,h,n,D]; q is scaled."""
        c, (b, h, n, d) = self.c, q.shape
        w, e = c["window"], max(c["window"] // 2, 1)
        if w == 0 and low_k is not None and c["rank"]:
            y = F.scaled_dot_product_attention(q, low_k, low_v, scale=1.0)
        elif low_k is None:
            y = self.window_values(self.window_logits(q, k, mask, w, e).softmax(-1), v, w, e)
        else:
            near = self.window_logits(q, k, mask, w, e) if w else (q * k).sum(-1, True)
            r = low_k.shape[2]
            p = torch.cat([q @ low_k.mT, near], -1).softmax(-1)
            far = p[..., :r] @ low_v
            y = far + (self.window_values(p[..., r:], v, w, e) if w else p[..., r:] * v)
        return y if mask is None else y * mask[:, None, :, None].to(y.dtype)

    def forward(self, x, cls, mask, rotations=None):
        c, h = self.c, self.c["heads"]
        if c["cls_from_seq"]:
            cls, x, mask = x[:, :1], x[:, 1:], None if mask is None else mask[:, 1:]
        scale = (c["dim"] // h) ** -0.5
        q = split(self.W_q(x) * scale, h)
        k, v = split(self.dual_ln_l(self.W_k(x)), h), split(self.dual_ln_l(self.W_v(x)), h)
        low = self.compress(x, k, v, mask) if c["rank"] else None
        if cls is not None:
            k_c, v_c = self.W_k(cls), self.W_v(cls)
            low = (torch.cat([k_c, low[0]], 1), torch.cat([v_c, low[1]], 1)) if low else (k_c, v_c)
        low_k, low_v = (split(self.dual_ln_s(t), h) for t in low) if low else (None, None)
        y = self.tokens(q, k, v, low_k, low_v, mask)
        if cls is not None:
            q_c = split(self.W_q(cls), h)
            if c["cls_mode"] == "values":
                keys = torch.cat([low_k[:, :, :1], k], 2)
                values = torch.cat([low_v[:, :, :1], v], 2)
            else:
                keys, values = torch.cat([split(k_c, h), y], 2), torch.cat([split(v_c, h), y], 2)
            m = None if mask is None else seen(F.pad(mask, (1, 0), value=True))
            o = F.scaled_dot_product_attention(q_c, keys, values, m)
        if c["conv"] > 0:
            y = y + convolve(self.conv.weight, hide(v.transpose(1, 2), mask).transpose(1, 2))
        return self.W_o(merge(y if cls is None else torch.cat([o, y], 2)))


# ---- the other attentions: from queries, keys, values [B,h,n,D] ----


class Softmax(nn.Module):
    def __init__(self, c):
        super().__init__()

    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, seen(mask))


class Linformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.E = nn.Parameter(torch.randn(c["heads"], c["rank"], c["length"]) * 0.02)
        if c["conv"] > 0:
            self.conv = filters(c["heads"], c["conv"])

    def forward(self, q, k, v, mask):
        if mask is not None:
            k, v = (t * mask[:, None, :, None].to(t.dtype) for t in (k, v))
        y = F.scaled_dot_product_attention(q, mix(self.E, k), mix(self.E, v))
        return y + convolve(self.conv.weight, v) if hasattr(self, "conv") else y


class Performer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.relu, m, d = c["relu"], c["rank"], c["dim"] // c["heads"]
        self.attn_fn = nn.Module()
        blocks = [torch.linalg.qr(torch.randn(d, d))[0].T for _ in range(-(-m // d))]
        rows = torch.cat(blocks)[:m] * torch.randn(m, d).norm(dim=1, keepdim=True)
        self.attn_fn.register_buffer("projection_matrix", rows)

    def features(self, x, over):
        u = x @ self.attn_fn.projection_matrix.to(x.dtype).T
        if self.relu:
            return F.relu(u) + 1e-3
        g = x.square().sum(-1, keepdim=True) / 2
        return torch.exp(u - g - u.detach().amax(over, keepdim=True)) + 1e-4

    def forward(self, q, k, v, mask):
        scale = q.shape[-1] ** -0.5
        q, k = q * scale, k * scale
        if mask is not None:
            k, v = (t * mask[:, None, :, None].to(t.dtype) for t in (k, v))
        q, k = self.features(q, -1), self.features(k, (-1, -2))
        return q @ (k.mT @ v) / (q @ k.sum(2).unsqueeze(-1))


class Nystrom(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.landmarks, self.per_head = c["rank"], c["inv_per_head"]
        if c["conv"] > 0:
            self.conv = filters(c["heads"], c["conv"])

    def inverse(self, a):
        top = a.sum(-2, keepdim=True)
        z = a.mT / (top.amax((-1, -2), keepdim=True) if self.per_head else top.max())
        one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        for _ in range(6):
            y = a @ z
            z = 0.25 * z @ (13 * one - y @ (15 * one - y @ (7 * one - y)))
        return z

    def forward(self, q, k, v, mask):
        b, h, n, d = q.shape
        if mask is not None:
            q, k = (t * mask[:, None, :, None].to(t.dtype) for t in (q, k))
        if self.landmarks == n:
            y = F.scaled_dot_product_attention(q, k, v, seen(mask))
        else:
            q_l, k_l = (t.unflatten(2, (self.landmarks, -1)).mean(3) for t in (q, k))
            z = self.inverse((q_l @ k_l.mT * d**-0.5).softmax(-1))
            low = z @ F.scaled_dot_product_attention(q_l, k, v, seen(mask)).to(z.dtype)
            y = F.scaled_dot_product_attention(q, k_l, low.to(q.dtype))
        if not hasattr(self, "conv"):
            return y
        v = v if mask is None else v * mask[:, None, :, None].to(v.dtype)
        return y + convolve(self.conv.weight, v)


class Linear(nn.Module):
    def __init__(self, c):
        super().__init__()

    def forward(self, q, k, v, mask):
        scale = q.shape[2] ** -0.25
        q, k = (F.elu(q) + 1) * scale, (F.elu(k) + 1) * scale
        if mask is not None:
            k, v = (t * mask[:, None, :, None].to(t.dtype) for t in (k, v))
        return q @ (k.mT @ v)


class Values(nn.Module):
    def __init__(self, c):
        super().__init__()

    def forward(self, q, k, v, mask):
        return v


class Wrapper(nn.Module):
    KINDS = dict(softmax=Softmax, linformer=Linformer, performer=Performer, nystrom=Nystrom,
                 linear=Linear, none=Values)

    def __init__(self, c):
        super().__init__()
        self.c, dim = c, c["dim"]
        for name in ("W_q", "W_k", "W_v", "ff"):
            setattr(self, name, nn.Linear(dim, dim))
        if c["kind"] != "reformer":
            self.attn = self.KINDS[c["kind"]](c)

    def forward(self, x, cls, mask, rotations=None):
        h = self.c["heads"]
        if self.c["kind"] == "reformer":
            qk, v = split(F.linear(x, self.W_q.weight), h), split(F.linear(x, self.W_v.weight), h)
            return self.ff(merge(reformer(qk, v, mask, rotations, self.c)))
        q, k, v = (split(f(x), h) for f in (self.W_q, self.W_k, self.W_v))
        return self.ff(merge(self.attn(q, k, v, mask)))


# ---- Reformer ----


def buckets_of(n, longest, chunk):
    power = (2 * (n // chunk)).bit_length() - 1
    if 2**power <= 2 * max(int(math.sqrt(longest // chunk)), chunk):
        return [2**power]
    return [2 ** (power // 2), 2 ** (power - power // 2)]


@torch.no_grad()
def order_of(qk, mask, rotations, factors, rounds):
    """The entries (round, token) of each head by bucket, [B,h,R n]; ties by index."""
    b, h, n, d = qk.shape
    z = torch.einsum("bhnd,hdrf->bhrnf", qk, rotations.to(qk.dtype))
    buckets, at, base = 0, 0, 1
    for f in factors:
        part = z[..., at : at + f // 2]
        buckets = buckets + torch.cat([part, -part], -1).argmax(-1) * base
        at, base = at + f // 2, base * f
    if mask is not None and not mask.all():
        buckets = buckets.masked_fill(~mask[:, None, None, :], base)
        base += 1
    buckets = buckets + base * torch.arange(rounds, device=qk.device)[:, None]
    return buckets.flatten(2).argsort(stable=True, dim=-1)


def reformer(qk, v, mask, rotations, c):
    b, h, n, d = qk.shape
    chunk, rounds = c["chunk"], c["rounds"]
    key = qk * torch.rsqrt(qk.square().mean(-1, keepdim=True) + 1e-6) * d**-0.5
    if n <= chunk:
        s = qk @ key.mT
        if mask is not None:
            s = s.masked_fill(~seen(mask), -1e9)
        s = s.masked_fill(torch.eye(n, dtype=torch.bool, device=s.device), -1e5)
        return s.softmax(-1) @ v
    factors = c["buckets"] or buckets_of(n, c["length"], chunk)
    if rotations is None:
        rotations = torch.randn(h, d, rounds, sum(factors) // 2, device=qk.device)
    entries = order_of(qk, mask, rotations, factors, rounds)
    place = entries % n
    rows = place[..., None].expand(-1, -1, -1, d)
    gather = lambda x: x.gather(2, rows).unflatten(2, (-1, chunk))  # [B,h,chunks,chunk,D]
    near = lambda x: torch.cat([x.roll(1, 2), x], 3)  # a chunk and the one before it
    sorted_place = place.unflatten(2, (-1, chunk))
    near_place = near(sorted_place[..., None])[..., 0]
    s = gather(qk) @ near(gather(key)).mT
    if mask is not None:
        real = mask[:, None, :].expand(b, h, n).gather(2, near_place.flatten(2)).view_as(near_place)
        s = s.masked_fill(~real[..., None, :], -1e9)
    s = s.masked_fill(sorted_place[..., :, None] == near_place[..., None, :], -1e5)
    logs = s.logsumexp(-1, keepdim=True)
    y = torch.exp(s - logs).to(v.dtype) @ near(gather(v))
    back = entries.argsort(-1)
    y = y.flatten(2, 3).gather(2, back[..., None].expand(-1, -1, -1, d)).unflatten(2, (rounds, n))
    logs = logs.flatten(2, 4).gather(2, back).unflatten(2, (rounds, n))
    return (logs.softmax(2)[..., None].to(y.dtype) * y).sum(2)


# ---- encoder ----


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        dim = c["dim"]
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mha = LongShort(c) if c["kind"] == "ls" else Wrapper(c)
        drop = lambda: nn.Dropout(c["dropout"])
        self.mlpblock = nn.Sequential(nn.Linear(dim, c["hidden"]), nn.GELU(), drop(),
                                      nn.Linear(c["hidden"], dim), drop())
        self.dropout = drop()

    def forward(self, x, cls, mask, rotations):
        a = self.mha(self.norm1(x), cls, mask, rotations)
        x = (x if cls is None else torch.cat([cls, x], 1)) + self.dropout(a)
        x = x + self.mlpblock(self.norm2(x))
        return (x, None) if cls is None else (x[:, 1:], x[:, :1])


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, dim = c, c["dim"]
        self.embeddings = nn.ModuleDict({
            "word_embeddings": nn.Embedding(c["vocab"], dim),
            "position_embeddings": nn.Embedding(c["length"], dim)})
        for table in self.embeddings.values():
            nn.init.normal_(table.weight, 0.0, 0.02)
        if c["pooling"] in ("last", "token"):
            self.cls_embed = nn.Parameter(torch.zeros(1, 1, dim))
        c = dict(c, cls_from_seq=c["pooling"] == "CLS" and c["kind"] == "ls")
        names = ["transformer"] if c["tied"] else [f"transformer_{i}" for i in range(c["layers"])]
        for name in names:
            setattr(self, name, Layer(c))
        self.names = names * c["layers"] if c["tied"] else names
        if c["kind"] == "linformer":
            for name in names[1:]:
                getattr(self, name).mha.attn.E = getattr(self, names[0]).mha.attn.E
        elif hasattr(getattr(self, names[0]).mha, "E"):
            for name in names[1:]:
                getattr(self, name).mha.E = getattr(self, names[0]).mha.E
        self.norm, self.dropout = nn.LayerNorm(dim), nn.Dropout(c["dropout"])

    def forward(self, ids, mask, rotations=None):
        c, cls = self.c, None
        if c["pooling"] == "CLS":
            cut = 1 if c["kind"] in ("nystrom", "reformer") else 0
            ids = F.pad(ids, (1, -cut), value=c["vocab"] - 1)
            mask = None if mask is None else F.pad(mask, (1, -cut), value=True)
        places = self.embeddings["position_embeddings"].weight[: ids.shape[1]]
        x = self.embeddings["word_embeddings"](ids) + places
        x = self.dropout(x)
        for i, name in enumerate(self.names):
            at_last = c["pooling"] == "last" and i + 1 == len(self.names)
            if c["pooling"] == "token" and i == 0 or at_last:
                cls = self.cls_embed.expand(len(ids), 1, -1)
            x, cls = getattr(self, name)(x, cls, mask, rotations[i] if rotations else None)
        return self.norm(cls) if cls is not None else hide(self.norm(x), mask)


class Classifier(nn.Module):
    """ids [B,n], mask [B,n] or None (no padding) -> logits."""

    def __init__(self, c):
        super().__init__()
        self.model = Encoder(c)
        self.seq_classifer = nn.Module()
        self.seq_classifer.mlpblock = nn.Sequential(
            nn.Linear(c["dim"], c["hidden"]), nn.ReLU(), nn.Linear(c["hidden"], c["classes"]))

    def forward(self, ids, mask, rotations=None):
        x = self.model(ids, mask, rotations)
        x = x.mean(1) if self.model.c["pooling"] == "MEAN" else x[:, 0]
        return self.seq_classifer.mlpblock(x)


# ---- measured models: the encoders of the task Text ----

TEXT = dict(
    kind="ls", dim=64, heads=2, hidden=128, layers=2, vocab=512, classes=2, length=4096, rank=0,
    window=0, conv=-1, chunk=64, rounds=2, buckets=None, relu=False, inv_per_head=False,
    dual_ln=True, proj="dynamic", cls_mode="outputs", cls_from_seq=False, pooling="MEAN",
    tied=False, dropout=0.0)
LS = dict(TEXT, pooling="last")
MODELS = {
    "lra-text-ls": dict(LS, window=8, rank=32),
    "lra-text-ls-best": dict(LS, window=1, rank=1),
    "lra-text-dp": dict(LS, rank=128),
    "lra-text-window": dict(LS, window=8),
    "lra-text-ls-linformer": dict(LS, window=8, rank=32, proj="linformer"),
    "lra-text-softmax": dict(TEXT, kind="softmax"),
    "lra-text-linformer": dict(TEXT, kind="linformer", rank=256),
    "lra-text-performer": dict(TEXT, kind="performer", rank=256),
    "lra-text-nystrom": dict(TEXT, kind="nystrom", rank=128),
    "lra-text-nystrom-conv": dict(TEXT, kind="nystrom", rank=128, conv=35),
    "lra-text-reformer": dict(TEXT, kind="reformer"),
    "lra-text-linear": dict(TEXT, kind="linear"),
}


# ---- checking and timing ----


def config(meta, tensors):
    get = lambda key, default: type(default)(meta.get(key, default))
    kind = meta.get("attention", meta.get("attn_type", "lsta")).split("-")[0]
    kind = "ls" if kind == "lsta" else kind
    ranks = dict(ls="num_landmarks", nystrom="num_landmarks", linformer="linformer_k",
                 performer="rp_dim")
    pooling = ("token" if get("cls_token", 0) else "last" if get("cls_last_layer", 0)
               else meta.get("pooling_mode", "MEAN"))
    factors = [int(n) for n in meta.get("bucket_factors", "0").split(",")]
    features = next((len(v) for k, v in tensors.items() if k.endswith("projection_matrix")), 0)
    return dict(
        TEXT, kind=kind, dim=get("dim", get("transformer_dim", 0)), heads=get("num_head", 0),
        hidden=get("transformer_hidden_dim", 0), layers=get("num_layers", 0),
        vocab=get("vocab_size", 0), classes=get("num_classes", 0),
        length=get("max_seq_len", get("seq_len", 0)), rank=features or get(ranks.get(kind, ""), 0),
        window=get("window_size", 0), conv=get("conv_kernel_size", -1),
        chunk=get("chunk_length", 64), rounds=get("num_hash", 2),
        buckets=factors if factors[0] else None, relu=meta.get("performer_kernel") == "relu",
        inv_per_head=bool(get("inv_per_head", 0)), dual_ln=bool(get("dual_ln", 1)),
        proj=meta.get("proj", "dynamic"), cls_mode=meta.get("cls_mode", "outputs"),
        cls_from_seq=bool(get("cls_from_seq", 0)), pooling=pooling,
        tied=bool(get("tied_weights", 0)))


def run_case(meta, t, c):
    """The module with the case's parameters, its output and the reference's."""
    mask_of = lambda name: t[name].bool() if name in t else None
    whole = meta["kind"] == "lra.encoder"
    module = Classifier(c) if whole else LongShort(c) if c["kind"] == "ls" else Wrapper(c)
    module = module.double()
    missing, extra = module.load_state_dict(stored_state(t), strict=False)
    if extra or any(not name.endswith(".E") for name in missing):
        raise ValueError(f"names differ: {missing} {extra}")
    if not whole:
        y = module(t["input.x"], t.get("input.cls"), mask_of("input.mask"),
                   t.get("input.random_rotations"))
        return module, y, t["output.y"]
    turns = sorted(k for k in t if "random_rotations" in k)
    y = module(t["input.ids0"].long(), mask_of("input.mask0"), [t[k] for k in turns] or None)
    return module, y, t["output.logits"]


def check(folder):
    paths = [p for kind in ("attn", "enc")
             for p in glob.glob(os.path.join(folder, kind + "_*.safetensors"))]
    for path in sorted(paths):
        t, meta = load_case(path)
        module, y, want = run_case(meta, t, config(meta, t))
        (y * t["input.probe"]).sum().backward()
        none = (meta.get("zero_grads", "") + " " + meta.get("unused_params", "")).split()
        pairs = [("output", y, want)]
        pairs += [(k, p.grad, t["grad." + k]) for k, p in module.named_parameters()
                  if k not in none]
        worst = 0.0
        for what, got, want in pairs:
            error = relative_error(got, want)
            if not error < 2e-6:
                sys.exit(f"{path} {what}: relative error {error:.2e}")
            worst = max(worst, error)
        print(f"{os.path.basename(path)}: {worst:.1e}")


def bench(args):
    model = Classifier(dict(MODELS[args.bench], length=args.tokens)).to(args.device)
    optimiser = training_step.adamw(model)
    run = training_step.compiled(model, args)

    def draw():
        x = torch.randint(4, 512, (args.batch, args.tokens), device=args.device)
        return x, torch.randint(2, (args.batch,), device=args.device)

    loss = lambda x, y: F.cross_entropy(run(x, None).float(), y)
    seconds = training_step.median(training_step.times(args, optimiser, draw, loss))
    training_step.report(
        args, model=args.bench, dtype=args.dtype, tokens=args.tokens, batch=args.batch,
        ran_batch=args.batch, threads=args.threads, seconds=seconds,
        tokens_per_s=args.batch * args.tokens / seconds,
        peak_mb=training_step.peak_mb(args))


def main():
    p = training_step.parser(__doc__, 4, MODELS, "NAME")
    p.add_argument("--tokens", type=int, default=4096)
    training_step.run(p, check, bench)


if __name__ == "__main__":
    main()
