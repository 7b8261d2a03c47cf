"""Image models in plain PyTorch, for comparison in benchmarks.

ViL with relative position bias (sliding chunks as one gather of each chunk's neighbourhood and
batched products, full attention by scaled_dot_product_attention) and CvT*-LS, written from the
papers' equations and the public description of the computation, with vectorised PyTorch ops and no
custom kernels.

    images_pytorch.py --check DIR                    compare with DIR's reference cases (vil, cvt)
    images_pytorch.py --bench MODEL [options]        time a training step and print one JSON line
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from reference_case import check_images
import training_step


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).flatten(2)


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


def differences(queries, keys):
    """Row and column differences of two lists of positions: [queries,keys,2]."""
    return queries[:, None, :] - keys[None, :, :]


def places(rows, cols, at=0):
    y, x = torch.meshgrid(torch.arange(rows) + at, torch.arange(cols) + at, indexing="ij")
    return torch.stack([y, x], -1).reshape(-1, 2)


class Windows:
    """Chunks of w x w cells of a map and their neighbourhoods: shapes and mask of visible cells."""

    def __init__(self, size, w, halo):
        self.size, self.w, self.halo = size, w, halo
        self.n = [-(-s // w) for s in size]
        inside = torch.ones(1, 1, *size)
        self.hidden = ~self.around(inside)[0, :, :, 0].bool()  # [chunks,keys]
        self.index = differences(places(w, w), places(w + 2 * halo, w + 2 * halo, -halo))

    def padded(self, x, halo):
        """x [B,C,H,W] padded to whole chunks and by a halo."""
        down, across = (n * self.w - s for n, s in zip(self.n, self.size))
        return F.pad(x, (halo, across + halo, halo, down + halo))

    def chunks(self, x):
        """[B,C,H,W] -> [B,chunks,w*w,C]"""
        x = self.padded(x, 0).unflatten(2, (self.n[0], self.w)).unflatten(4, (self.n[1], self.w))
        return x.permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(1, 2)

    def around(self, x):
        """[B,C,H,W] -> [B,chunks,keys,C]"""
        side = self.w + 2 * self.halo
        x = self.padded(x, self.halo).unfold(2, side, self.w).unfold(3, side, self.w)
        return x.permute(0, 2, 3, 4, 5, 1).flatten(3, 4).flatten(1, 2)

    def join(self, x):
        """[B,chunks,w*w,C] -> [B,H*W,C]"""
        x = x.unflatten(1, self.n).unflatten(3, (self.w, self.w)).permute(0, 1, 3, 2, 4, 5)
        return x.flatten(1, 2).flatten(2, 3)[:, : self.size[0], : self.size[1]].flatten(1, 2)


def window_attention(win, q, k, v, extra_k, extra_v, bias, extra_bias):
    """q, k, v [B,h,N,M] of the map, extra keys [B,h,E,M], biases [h,w*w,keys] and [h,E] or None."""
    b, h, _, m = q.shape
    fold = lambda x: x.reshape(b * h, -1, m).transpose(1, 2).unflatten(2, win.size)
    q, k, v = win.chunks(fold(q)), win.around(fold(k)), win.around(fold(v))
    extra_k, extra_v = extra_k.reshape(b * h, 1, -1, m), extra_v.reshape(b * h, 1, -1, m)
    local = q @ k.transpose(2, 3)
    if bias is not None:
        local = (local.unflatten(0, (b, h)) + bias[None, :, None]).flatten(0, 1)
    local = local.masked_fill(win.hidden.to(q.device)[None, :, None], -torch.inf)
    far = q @ extra_k.transpose(2, 3)
    if extra_bias is not None:
        far = (far.unflatten(0, (b, h)) + extra_bias[None, :, None, None]).flatten(0, 1)
    p = torch.cat([far, local], -1).softmax(-1)
    n = far.shape[-1]
    return win.join(p[..., :n] @ extra_v + p[..., n:] @ v).unflatten(0, (b, h))


# ---- ViL ----


class VilAttention(nn.Module):
    """One stage's attention: w > 0 sliding chunks, w = 0 full; g global tokens first."""

    def __init__(self, dim, heads, size, w, g):
        super().__init__()
        self.heads, self.w, self.g = heads, w, g
        if w:
            self.windows = Windows(size, w, w)
            self.query, self.kv = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim)
            index, reach = self.windows.index, [2 * w - 1] * 2
        else:
            self.qkv = nn.Linear(dim, 3 * dim)
            index, reach = differences(places(*size), places(*size)), [s - 1 for s in size]
        self.proj = nn.Linear(dim, dim)
        self.index = (index[..., 0] + reach[0]) * (2 * reach[1] + 1) + index[..., 1] + reach[1]
        rows = (2 * reach[0] + 1) * (2 * reach[1] + 1)
        self.local_relative_position_bias_table = nn.Parameter(torch.zeros(rows, heads))
        if g:
            self.g2l_relative_position_bias = nn.Parameter(torch.zeros(2, heads, g))
            self.g2g_relative_position_bias = nn.Parameter(torch.zeros(heads, g, g))

    def local_bias(self):
        return self.local_relative_position_bias_table[self.index].permute(2, 0, 1)

    def global_rows(self, q, k, v):
        cells = k.shape[2] - self.g
        to_local = self.g2l_relative_position_bias[0][:, :, None].expand(-1, -1, cells)
        bias = torch.cat([self.g2g_relative_position_bias, to_local], -1)
        return F.scaled_dot_product_attention(q[:, :, : self.g], k, v, bias[None])

    def full(self, q, k, v):
        bias = self.local_bias()
        if self.g:
            rows, n = self.g2l_relative_position_bias, bias.shape[1]
            from_local = rows[1][:, None, :].expand(-1, n, -1)
            to_local = rows[0][:, :, None].expand(-1, -1, n)
            bias = torch.cat([torch.cat([self.g2g_relative_position_bias, to_local], -1),
                              torch.cat([from_local, bias], -1)], 1)
        return F.scaled_dot_product_attention(q, k, v, bias[None])

    def sliding(self, q, k, v):
        g, scale = self.g, q.shape[-1] ** -0.5
        far = self.g2l_relative_position_bias[1] if g else None
        y = window_attention(self.windows, scale * q[:, :, g:], k[:, :, g:], v[:, :, g:],
                             k[:, :, :g], v[:, :, :g], self.local_bias(), far)
        return torch.cat([self.global_rows(q, k, v), y], 2) if g else y

    def forward(self, x):
        parts = [self.query(x), *self.kv(x).chunk(2, -1)] if self.w else self.qkv(x).chunk(3, -1)
        q, k, v = (split_heads(t, self.heads) for t in parts)
        return self.proj(join_heads(self.sliding(q, k, v) if self.w else self.full(q, k, v)))


class VilSublayer(nn.Module):
    def __init__(self, dim, **inner):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.inner = next(iter(inner))
        self.add_module(self.inner, inner[self.inner])

    def forward(self, x):
        return x + getattr(self, self.inner)(self.norm(x))


class VilEmbedding(nn.Module):
    def __init__(self, channels, dim, patch, g):
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, patch, patch)
        self.norm_embed = nn.LayerNorm(dim, eps=1e-6)
        self.cls_token = nn.Parameter(torch.zeros(1, g, dim)) if g else None

    def forward(self, x):
        x = self.norm_embed(self.proj(x).flatten(2).transpose(1, 2))
        if self.cls_token is None:
            return x
        return torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)


class Vil(nn.Module):
    """The model of an official configuration string, with relative position bias."""

    def __init__(self, arch, size, classes):
        super().__init__()
        self.stages, channels, dense = [], 3, False
        for stage in arch.split("_"):
            c = {part[0]: int(part[1:]) for part in stage.split(",")}
            size, dense = [s // c["p"] for s in size], dense or not c["s"]
            layers = [VilEmbedding(channels, c["d"], c["p"], c["g"])]
            for _ in range(c["n"]):
                attn = VilAttention(c["d"], c["h"], size, 0 if dense else c["f"], c["g"])
                layers += [VilSublayer(c["d"], attn=attn), VilSublayer(c["d"], mlp=Mlp(c["d"]))]
            setattr(self, f"layer{c['l']}", nn.Sequential(*layers))
            self.stages.append((f"layer{c['l']}", c["g"], size))
            channels = c["d"]
        self.norm, self.head = nn.LayerNorm(channels, eps=1e-6), nn.Linear(channels, classes)

    def forward(self, x):
        for i, (name, g, size) in enumerate(self.stages):
            x = getattr(self, name)(x)
            if i + 1 < len(self.stages):
                x = x[:, g:].transpose(1, 2).unflatten(2, size)
        x = self.norm(x)
        return self.head(x[:, 0] if self.stages[-1][1] else x.mean(1))


# ---- CvT*-LS ----


class SepConv(nn.Module):
    """Depthwise convolution and BatchNorm of the map; the class row is unchanged."""

    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.bn = nn.BatchNorm2d(dim)

    def forward(self, x):
        return self.bn(self.conv(x))


class StandardConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)

    def forward(self, x):
        w = self.conv.weight
        mean, std = w.mean((1, 2, 3), keepdim=True), w.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, (w - mean) / (std + 1e-5), self.conv.bias, padding=1, groups=x.shape[1])


class LsAttention(nn.Module):
    def __init__(self, dim, heads, size, rank, w, cls):
        super().__init__()
        self.heads, self.rank, self.size, self.cls = heads, rank, size, cls
        self.windows = Windows(size, w, max(1, w // 2))
        for n in "qkv":
            setattr(self, f"conv_proj_{n}", SepConv(dim))
            setattr(self, f"proj_{n}", nn.Linear(dim, dim))
        self.conv_proj_p, self.proj_p = StandardConv(dim), nn.Linear(dim, heads * rank)
        self.dual_ln_full, self.dual_ln_dp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.proj = nn.Linear(dim, dim) if heads > 1 else nn.Identity()

    def project(self, n, row, image):
        x = getattr(self, f"conv_proj_{n}")(image).flatten(2).transpose(1, 2)
        return getattr(self, f"proj_{n}")(torch.cat([row, x], 1))

    def compress(self, p, x):
        """p [B,h,r,N], x [B,N,D] -> [B,h,r,M]"""
        return split_heads(self.dual_ln_dp(join_heads(p @ split_heads(x, self.heads))), self.heads)

    def forward(self, x):
        c = self.cls
        image = x[:, c:].transpose(1, 2).unflatten(2, self.size)
        q, k, v = (self.project(n, x[:, :c], image) for n in "qkv")
        q = q * (q.shape[-1] // self.heads) ** -0.5
        k, v = self.dual_ln_full(k), self.dual_ln_full(v)
        p = self.proj_p(self.conv_proj_p(image).flatten(2).transpose(1, 2))
        p = p.unflatten(-1, (self.heads, self.rank)).permute(0, 2, 3, 1).softmax(-1)
        low_k, low_v = self.compress(p, k[:, c:]), self.compress(p, v[:, c:])
        q, k, v = (split_heads(t, self.heads) for t in (q, k, v))
        y = window_attention(self.windows, q[:, :, c:], k[:, :, c:], v[:, :, c:],
                             torch.cat([low_k, k[:, :, :c]], 2), torch.cat([low_v, v[:, :, :c]], 2),
                             None, None)
        if c:
            k, v = torch.cat([k[:, :, :1], y], 2), torch.cat([v[:, :, :1], y], 2)
            y = torch.cat([F.scaled_dot_product_attention(q[:, :, :1], k, v, scale=1.0), y], 2)
        return self.proj(join_heads(y))


class CvtBlock(nn.Module):
    def __init__(self, dim, attn):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn, self.mlp = attn, Mlp(dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CvtStage(nn.Module):
    def __init__(self, channels, dim, heads, depth, size, rank, w, first, last):
        super().__init__()
        self.patch_embed = nn.Module()
        kernel = (7, 4, 2) if first else (3, 2, 1)
        self.patch_embed.proj = nn.Conv2d(channels, dim, *kernel)
        self.patch_embed.norm = nn.LayerNorm(dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if last else None
        self.blocks = nn.Sequential(
            *(CvtBlock(dim, LsAttention(dim, heads, size, rank, w, int(last)))
              for _ in range(depth)))

    def forward(self, x):
        x = self.patch_embed.norm(self.patch_embed.proj(x).flatten(2).transpose(1, 2))
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        return self.blocks(x)


class CvtLs(nn.Module):
    def __init__(self, dims, heads, depth, rank, w, size, classes):
        super().__init__()
        self.sizes, channels = [], 3
        for i, dim in enumerate(dims):
            k, s, p = (7, 4, 2) if i == 0 else (3, 2, 1)
            size = [(n + 2 * p - k) // s + 1 for n in size]
            self.sizes.append(size)
            stage = CvtStage(channels, dim, heads[i], depth[i], size, rank[i], w[i], i == 0,
                             i + 1 == len(dims))
            setattr(self, f"stage{i}", stage)
            channels = dim
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, classes)

    def forward(self, x):
        for i, size in enumerate(self.sizes):
            x = getattr(self, f"stage{i}")(x)
            if i + 1 < len(self.sizes):
                x = x.transpose(1, 2).unflatten(2, size)
        return self.head(self.norm(x[:, 0]))


# ---- checking and timing ----

VIL_TINY = ("l1,h1,d48,n1,s1,g1,p4,f7,a0_l2,h3,d96,n1,s1,g1,p2,f7,a0_l3,h3,d192,n9,s0,g1,p2,f7,a0_"
            "l4,h6,d384,n1,s0,g0,p2,f7,a0")
MODELS = {
    "vil-tiny": lambda: Vil(VIL_TINY, [224, 224], 1000),
    "cvt-ls-13": lambda: CvtLs([64, 192, 384], [1, 3, 6], [1, 2, 10], [64, 16, 4], [8, 4, 2],
                               [224, 224], 1000),
}


def from_case(meta, image):
    size = list(image.shape[2:])
    if meta["kind"] == "vil.model":
        return Vil(meta["arch"], size, int(meta["num_classes"]))
    keys = ("dims", "heads", "depth", "r", "w")
    numbers = [[int(n) for n in meta[key].split(",")] for key in keys]
    return CvtLs(*numbers, size, int(meta["num_classes"]))


def check(folder):
    kinds = ("vil/model_vil_rpb", "cvt/cvtls_reduced_eval", "cvt/cvtls_reduced_train")
    check_images(folder, kinds, from_case)


def bench(args):
    layout = training_step.layout(args)
    model = MODELS[args.bench]().to(args.device, memory_format=layout)
    optimiser = training_step.adamw(model)
    run = training_step.compiled(model, args)
    x = torch.randn(args.batch, 3, 224, 224, device=args.device).to(memory_format=layout)
    y = torch.randint(1000, (args.batch,), device=args.device)
    loss = lambda x, y: F.cross_entropy(run(x).float(), y)
    times = training_step.times(args, optimiser, lambda: (x, y), loss)
    seconds = training_step.median(times)
    training_step.report(
        args, model=args.bench, dtype=args.dtype, batch=args.batch, threads=args.threads,
        seconds=seconds, images_per_s=args.batch / seconds, peak_mb=training_step.peak_mb(args))


def main():
    training_step.run(training_step.parser(__doc__, 8, MODELS, without=()), check, bench)


if __name__ == "__main__":
    main()
