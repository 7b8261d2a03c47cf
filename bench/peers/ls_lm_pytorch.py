"""The Transformer-LS language model in plain PyTorch, for comparison in benchmarks.

Written from the paper's equations and the public description of the computation, with vectorised
PyTorch ops and no custom kernels: window logits on overlapping tiles, chunk logits with a
visibility mask, one softmax over both.

    ls_lm_pytorch.py --check DIR          compare with the reference cases in DIR (attn_*, model_*)
    ls_lm_pytorch.py --bench [options]    time a training step and print one JSON line
"""
import gc
import glob
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from reference_case import load_case, relative_error
import training_step


def sinusoid(positions, dim, clamp=-1):
    if clamp > 0:
        positions = positions.clamp(max=clamp)
    freq = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = positions.double()[:, None] * freq[None, :]
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class LSAttention(nn.Module):
    """h [B,M,d], cache [B,L,d], both normalised -> [B,M,d]."""

    def __init__(self, dim, heads, chunk, rank, window, use_bias=False):
        super().__init__()
        self.heads, self.chunk, self.rank, self.window = heads, chunk, rank, window
        self.head = dim // heads
        for name in ("proj_query", "proj_key", "proj_val", "proj_out"):
            setattr(self, name, nn.Linear(dim, dim, bias=use_bias))
        self.dconv_1 = nn.Linear(dim, heads * rank)
        self.r_net = nn.Linear(dim, dim, bias=False)
        self.r_net_chunk = nn.Linear(dim, dim)
        self.r_w_bias = nn.Parameter(torch.zeros(1, heads, 1, 1, self.head))
        self.r_r_bias = nn.Parameter(torch.zeros(1, heads, 1, self.head))
        self.dual_ln_win = nn.LayerNorm(dim)
        self.dual_ln_dproj = nn.LayerNorm(dim)

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, self.head).transpose(1, 2)

    def compress(self, x, scores):
        """[B,N,d] and [B,N,H*r] -> [B,N/l*r,d]."""
        b, n, d = x.shape
        c = n // self.chunk
        p = scores.view(b, c, self.chunk, self.heads, self.rank).softmax(dim=2)
        x = x.view(b, c, self.chunk, self.heads, self.head)
        return torch.einsum("bclhr,bclhd->bcrhd", p, x).reshape(b, c * self.rank, d)

    def window_part(self, q, k, pos, w):
        """Logits [B,H,M,w] of each query and its w last keys; k [B,H,w+M,D], oldest first."""
        b, h, m, d = q.shape
        t = min(w, m)
        tiles = m // t
        span = w + t
        size = (b, h, tiles, span, d)
        s = k.stride()
        view = k.as_strided(size, (s[0], s[1], t * s[2], s[2], s[3]))
        a = (q + self.r_w_bias[:, :, 0]).reshape(b, h, tiles, t, d)
        logits = a @ view.transpose(-1, -2)  # query i of a tile sees columns i+1 .. i+w
        s = logits.stride()
        band = logits.as_strided((b, h, tiles, t, w), (s[0], s[1], s[2], s[3] + s[4], s[4]),
                                 logits.storage_offset() + s[4])
        return band.reshape(b, h, m, w) + (q + self.r_r_bias) @ pos.transpose(-1, -2)

    def window_values(self, p, v, w):
        b, h, m, _ = p.shape
        t = min(w, m)
        tiles, span = m // t, w + t
        wide = p.new_zeros(b, h, tiles, t, span + 1)
        s = wide.stride()
        shape, strides = (b, h, tiles, t, w), (s[0], s[1], s[2], s[3] + s[4], s[4])
        wide = torch.as_strided_scatter(wide, p.reshape(shape), shape, strides, s[4])
        wide = wide[..., :span]
        s = v.stride()
        view = v.as_strided((b, h, tiles, span, self.head), (s[0], s[1], t * s[2], s[2], s[3]))
        return (wide @ view).reshape(b, h, m, self.head)

    def forward(self, h, cache, pos_win, pos_chunk):
        b, m, dim = h.shape
        n_cache, w = cache.shape[1], self.window
        q = self.split(self.proj_query(h)) / math.sqrt(self.head)
        rows = torch.cat([cache[:, n_cache - w :], h], dim=1)
        key, val = self.proj_key(rows), self.proj_val(rows)
        k_win = self.split(self.dual_ln_win(key)).contiguous()
        v_win = self.split(self.dual_ln_win(val)).contiguous()

        scores = self.dconv_1(h)
        old = self.compress(cache, self.dconv_1(cache))
        k_cmp = torch.cat([self.proj_key(old), self.compress(key[:, w:], scores)], dim=1)
        v_cmp = torch.cat([self.proj_val(old), self.compress(val[:, w:], scores)], dim=1)
        k_cmp, v_cmp = self.split(self.dual_ln_dproj(k_cmp)), self.split(self.dual_ln_dproj(v_cmp))

        r_win = self.split(self.r_net(pos_win)[None])  # oldest first
        r_cmp = self.split(self.r_net_chunk(pos_chunk)[None])  # by decreasing distance
        win = self.window_part(q, k_win, r_win, w)

        nc, l, r = k_cmp.shape[2], self.chunk, self.rank
        rel = q @ r_cmp.transpose(-1, -2)  # [B,H,M,nc]; vector v of chunk m: column v + (M/l-m) r
        query_chunk = torch.arange(m, device=h.device) // l
        vector = torch.arange(nc, device=h.device)
        column = vector[None, :] + (m // l - query_chunk[:, None]) * r
        visible = vector[None, :] // r < n_cache // l + query_chunk[:, None]
        rel = rel.gather(3, column.clamp(max=nc - 1).expand(b, self.heads, m, nc))
        far = (q @ k_cmp.transpose(-1, -2) + rel).masked_fill(~visible, float("-inf"))

        p = torch.cat([far, win], dim=-1).softmax(dim=-1)
        out = p[..., :nc] @ v_cmp + self.window_values(p[..., nc:], v_win, w)
        return self.proj_out(out.transpose(1, 2).reshape(b, m, dim))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden, dropout, gelu):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.dropout, self.act = dropout, F.gelu if gelu else F.relu

    def forward(self, x):
        x = F.dropout(self.act(self.fc1(x)), self.dropout, self.training)
        return F.dropout(self.fc2(x), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.pre_ln, self.dropout = cfg["pre_ln"], cfg["dropout"]
        self.attn = LSAttention(cfg["dim"], cfg["heads"], cfg["chunk"], cfg["rank"], cfg["window"],
                                cfg["use_bias"])
        self.norm1, self.norm2 = nn.LayerNorm(cfg["dim"]), nn.LayerNorm(cfg["dim"])
        self.ff = FeedForward(cfg["dim"], cfg["hidden"], cfg["dropout"], cfg["gelu"])

    def forward(self, h, cache, pos_win, pos_chunk):
        if self.pre_ln:
            h, cache = self.norm1(h), self.norm1(cache)
        h = h + F.dropout(self.attn(h, cache, pos_win, pos_chunk), self.dropout, self.training)
        h = self.norm2(h) if self.pre_ln else self.norm1(h)
        h = h + self.ff(h)
        return h if self.pre_ln else self.norm2(h)


class LanguageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.in_emb = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.out_bias = nn.Parameter(torch.zeros(cfg["vocab"]))
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg["layers"]))

    def forward(self, tokens, caches):
        cfg = self.cfg
        b, m = tokens.shape
        dtype = self.in_emb.weight.dtype
        drop = lambda x: F.dropout(x, cfg["dropout"], self.training)
        h = drop(self.in_emb(tokens) * math.sqrt(cfg["dim"]))
        if caches is None:
            caches = [h.new_zeros(b, cfg["mem_len"], cfg["dim"]) for _ in self.layers]
        nc = (m + cfg["mem_len"]) // cfg["chunk"] * cfg["rank"]
        back = lambda n: torch.arange(n - 1, -1, -1)
        pos_win = drop(sinusoid(back(cfg["window"]), cfg["dim"], cfg["clamp"]).to(h))
        pos_chunk = sinusoid(back(nc), cfg["dim"], cfg["chunk_clamp"]).to(h)
        fresh = []
        for layer, cache in zip(self.layers, caches):
            fresh.append(torch.cat([cache, h.detach()], dim=1)[:, -cfg["mem_len"] :])
            h = layer(h, cache, pos_win, pos_chunk)
        h = drop(h)
        return F.linear(h, self.in_emb.weight, self.out_bias), fresh


def config(meta):
    num = lambda key, default: type(default)(meta.get(key, default))
    return dict(
        vocab=num("vocab_size", 208), dim=num("d_model", 512), hidden=num("d_inner", 2048),
        heads=num("n_head", 8), layers=num("n_layer", 12), mem_len=num("mem_len", 2048),
        chunk=num("chunk_size", 16), rank=num("chunk_rank", 1), window=num("window_len", 512),
        use_bias=bool(num("use_bias", 0)), pre_ln=bool(num("pre_ln", 1)),
        gelu=bool(num("use_gelu", 1)), clamp=num("clamp_len", -1),
        chunk_clamp=num("cpos_clamp_len", -1), dropout=0.0,
    )


def set_parameters(module, tensors):
    names = dict(module.named_parameters())
    for key, value in tensors.items():
        if key.startswith("param."):
            name = key[6:].replace("out_emb.bias", "out_bias")
            if name in names:
                names[name].data = value.clone()
    return names


def compare(what, ours, reference):
    worst = relative_error(ours.double(), reference)
    if not worst < 1e-6:
        sys.exit(f"{what}: relative error {worst:.2e}")
    return worst


def check(folder):
    for path in sorted(glob.glob(os.path.join(folder, "attn_*.safetensors"))):
        t, meta = load_case(path)
        c = config(meta)
        op = LSAttention(c["dim"], c["heads"], c["chunk"], c["rank"], c["window"], c["use_bias"])
        op = op.double()
        names = set_parameters(op, t)
        out = op(t["input.h"], t["input.h_cache"], t["input.pos_window"], t["input.pos_chunks"])
        worst = compare(path + " out", out, t["output.out"])
        (out * t["input.probe"]).sum().backward()
        for name, p in names.items():
            if name not in meta.get("zero_grads", "").split():
                worst = max(worst, compare(path + " " + name, p.grad, t["grad." + name]))
        print(f"{os.path.basename(path)}: {worst:.1e}")
    for path in sorted(glob.glob(os.path.join(folder, "model_*.safetensors"))):
        t, meta = load_case(path)
        lengths = [int(n) for n in meta["segment_lengths"].split(",")]
        if any(n % int(meta["chunk_size"]) for n in lengths):
            continue  # this implementation does not pad
        model = LanguageModel(config(meta)).double()
        set_parameters(model, t)
        caches, worst = None, 0.0
        for i in range(len(lengths)):
            logits, caches = model(t[f"input.tokens.{i}"], caches)
            target = t[f"input.targets.{i}"]
            nll = -logits.log_softmax(-1).gather(2, target.clamp(min=0)[..., None])[..., 0]
            nll = torch.where(target < 0, torch.zeros_like(nll), nll)
            worst = max(worst, compare(path + f" nll {i}", nll, t[f"output.nll.{i}"]))
        print(f"{os.path.basename(path)}: {worst:.1e}")


SMOKE = dict(dim=64, hidden=64, heads=2, window=32, layers=2)  # replaces those of `small`


def steps(args, batch):
    """Seconds of a step and peak MB with this batch size."""
    cuda = args.device != "cpu"
    sizes = dict(config({}), layers=args.layers, mem_len=args.tokens, dropout=args.dropout)
    sizes.update(SMOKE if args.smoke else {})
    model = LanguageModel(sizes).to(args.device)
    model.train()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, 0.0, 0.02)
    optimiser = training_step.adamw(model)
    run = training_step.compiled(model, args)
    caches = None

    def draw():
        return [torch.randint(4, 208, (batch, args.tokens), device=args.device) for _ in "xy"]

    def loss(x, y):
        nonlocal caches
        logits, caches = run(x, caches)
        return F.cross_entropy(logits.view(-1, 208).float(), y.view(-1))

    if not cuda:
        seconds = training_step.median(training_step.times(args, optimiser, draw, loss))
        if training_step.ranks() > 1:
            with run.no_sync():
                alone = training_step.median(training_step.times(args, optimiser, draw, loss))
            args.exposed = seconds - alone
        return seconds, training_step.peak_mb(args)
    for i in range(training_step.WARM_UP + args.steps):  # the host runs ahead, as in training
        x, y = draw()
        if i == training_step.WARM_UP:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
        training_step.step(args, optimiser, loss, x, y)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / args.steps, training_step.peak_mb(args)


def bench(args):
    """Prints one JSON line. A batch that does not fit into GPU memory is halved until it does:
    tokens_per_s are then those of ran_batch, and peak_mb is all of the GPU's memory."""
    batch, room = args.batch, None
    while True:
        try:
            seconds, peak = steps(args, batch // training_step.ranks())
            break
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
        batch //= 2
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()
        room = torch.cuda.get_device_properties(0).total_memory / 2**20
    training_step.report(
        args, model="ls_lm-small", dtype=args.dtype, tokens=args.tokens, batch=args.batch,
        ran_batch=batch, threads=args.threads, seconds=seconds,
        tokens_per_s=batch * args.tokens / seconds, peak_mb=room or peak, smoke=args.smoke,
        **({"exposed": args.exposed} if training_step.ranks() > 1 else {}))


def main():
    p = training_step.parser(__doc__, 1, without=("clock", "channels-last"))
    p.add_argument("--tokens", type=int, default=2048)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--smoke", action="store_true", help="a small model; the figures mean nothing")
    training_step.run(p, check, bench)


if __name__ == "__main__":
    main()
