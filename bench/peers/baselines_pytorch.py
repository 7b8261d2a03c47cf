"""The image models of torchvision and timm, for comparison in benchmarks.

ResNet-50 and Swin-T are torchvision's; DeiT-S, Swin-T, PVTv2-B1 and CoaT-Lite-Small are timm's.
CSWin-T and MPViT-XS are in no package: they are written here in plain PyTorch from the papers'
equations and the public description of the computation, with vectorised ops and
scaled_dot_product_attention.

    baselines_pytorch.py --check DIR                 compare CSWin and MPViT with the cases in DIR
    baselines_pytorch.py --bench MODEL [options]     time a training step and print one JSON line

A step is forward, cross entropy, backward and AdamW on random images, without stochastic depth or
dropout. "peak_mb" is the process's peak resident memory; "base_mb" is the part before the model was
made: Python and the libraries.
"""
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

from reference_case import check_images
import training_step


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


def depthwise(dim, kernel, stride=1, bias=True):
    return nn.Conv2d(dim, dim, kernel, stride, kernel // 2, groups=dim, bias=bias)


# ---- CSWin ----


class Stripes(nn.Module):
    """Attention in h x w stripes of a side x side map, with the convolution of the values."""

    def __init__(self, dim, heads, side, h, w):
        super().__init__()
        self.heads, self.side, self.h, self.w = heads, side, h, w
        self.get_v = depthwise(dim, 3)

    def cut(self, x):
        """[B,side*side,D] -> [B*stripes,h*w,D]"""
        x = x.view(len(x), self.side // self.h, self.h, self.side // self.w, self.w, -1)
        return x.transpose(2, 3).reshape(-1, self.h * self.w, x.shape[-1])

    def join(self, x):
        x = x.view(-1, self.side // self.h, self.side // self.w, self.h, self.w, x.shape[-1])
        return x.transpose(2, 3).reshape(len(x), self.side**2, -1)

    def forward(self, q, k, v):
        q, k, v = (self.cut(t) for t in (q, k, v))
        near = self.get_v(v.transpose(1, 2).reshape(len(v), -1, self.h, self.w))
        near = near.flatten(2).transpose(1, 2)
        heads = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return self.join(y + near)


class CswinBlock(nn.Module):
    def __init__(self, dim, heads, side, split, ratio, last):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        shapes = [(side, side)] if last or side == split else [(side, split), (split, side)]
        n = len(shapes)
        self.attns = nn.ModuleList(Stripes(dim // n, heads // n, side, h, w) for h, w in shapes)
        self.mlp = Mlp(dim, int(ratio * dim))

    def forward(self, x):
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, len(self.attns), -1))
        y = torch.cat([a(*parts[:, :, :, i].unbind(2)) for i, a in enumerate(self.attns)], -1)
        x = x + self.proj(y)
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(dim, 2 * dim, 3, 2, 1), nn.LayerNorm(2 * dim)

    def forward(self, x, side):
        x = self.conv(x.transpose(1, 2).unflatten(2, (side, side)))
        return self.norm(x.flatten(2).transpose(1, 2))


class Cswin(nn.Module):
    def __init__(self, dim, depths, splits, heads, ratio, image, classes):
        super().__init__()
        steps = [nn.Conv2d(3, dim, 7, 4, 2), nn.Identity(), nn.LayerNorm(dim)]
        self.stage1_conv_embed = nn.ModuleList(steps)
        side, self.sides = (image - 3) // 4 + 1, []
        for i, (n, split, h) in enumerate(zip(depths, splits, heads)):
            self.sides.append(side)
            blocks = [CswinBlock(dim, h, side, split, ratio, i == 3) for _ in range(n)]
            setattr(self, f"stage{i + 1}", nn.Sequential(*blocks))
            if i < 3:
                setattr(self, f"merge{i + 1}", Merge(dim))
                dim, side = 2 * dim, (side + 1) // 2
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stage1_conv_embed[2](self.stage1_conv_embed[0](x).flatten(2).transpose(1, 2))
        for i in range(4):
            x = getattr(self, f"stage{i + 1}")(x)
            if i < 3:
                x = getattr(self, f"merge{i + 1}")(x, self.sides[i])
        return self.head(self.norm(x).mean(1))


# ---- MPViT ----


class ConvBn(nn.Module):
    def __init__(self, i, o, kernel=1, stride=1, plain=False):
        super().__init__()
        self.conv = nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(o)
        self.plain = plain

    def forward(self, x):
        x = self.bn(self.conv(x))
        return x if self.plain else F.hardswish(x)


class Patches(nn.Module):
    def __init__(self, dim, stride):
        super().__init__()
        self.patch_conv = nn.Module()
        self.patch_conv.dwconv = depthwise(dim, 3, stride, False)
        self.patch_conv.pwconv = nn.Conv2d(dim, dim, 1, bias=False)
        self.patch_conv.bn = nn.BatchNorm2d(dim)

    def forward(self, x):
        c = self.patch_conv
        return F.hardswish(c.bn(c.pwconv(c.dwconv(x))))


class Position(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = depthwise(dim, 3)

    def forward(self, x, size):
        y = self.proj(x.transpose(1, 2).unflatten(2, size))
        return x + y.flatten(2).transpose(1, 2)


class Relative(nn.Module):
    def __init__(self, dim, heads, kernels):
        super().__init__()
        self.sizes = [h * dim // heads for _, h in kernels]
        self.conv_list = nn.ModuleList(depthwise(n, k) for n, (k, _) in zip(self.sizes, kernels))

    def forward(self, q, v, size):
        """q, v [B,n,D] -> [B,n,D]"""
        v = v.transpose(1, 2).unflatten(2, size).split(self.sizes, 1)
        y = torch.cat([conv(part) for conv, part in zip(self.conv_list, v)], 1)
        return q * y.flatten(2).transpose(1, 2)


class FactorAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, relative, size):
        q, k, v = self.qkv(x).chunk(3, -1)
        near = relative(q, v, size)
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        g = split(k).softmax(2).transpose(2, 3) @ split(v)
        far = (split(q) * (x.shape[-1] // self.heads) ** -0.5) @ g
        return self.proj(far.transpose(1, 2).flatten(2) + near)


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, ratio):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-6), nn.LayerNorm(dim, 1e-6)
        self.factoratt_crpe, self.mlp = FactorAttention(dim, heads), Mlp(dim, ratio * dim)

    def forward(self, x, cpe, crpe, size):
        x = cpe(x, size)
        x = x + self.factoratt_crpe(self.norm1(x), crpe, size)
        return x + self.mlp(self.norm2(x))


class PathEncoder(nn.Module):
    def __init__(self, dim, heads, ratio, layers, kernels):
        super().__init__()
        self.cpe, self.crpe = Position(dim), Relative(dim, heads, kernels)
        self.MHCA_layers = nn.ModuleList(EncoderBlock(dim, heads, ratio) for _ in range(layers))

    def forward(self, x):
        size, t = x.shape[2:], x.flatten(2).transpose(1, 2)
        for layer in self.MHCA_layers:
            t = layer(t, self.cpe, self.crpe, size)
        return t.transpose(1, 2).unflatten(2, size)


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv1, self.conv2 = ConvBn(dim, dim), ConvBn(dim, dim, plain=True)
        self.dwconv, self.norm = depthwise(dim, 3, 1, False), nn.BatchNorm2d(dim)

    def forward(self, x):
        return x + self.conv2(F.hardswish(self.norm(self.dwconv(self.conv1(x)))))


class MpvitStage(nn.Module):
    def __init__(self, dim, out, heads, ratio, layers, paths, kernels):
        super().__init__()
        encoders = [PathEncoder(dim, heads, ratio, layers, kernels) for _ in range(paths)]
        self.mhca_blks = nn.ModuleList(encoders)
        self.InvRes, self.aggregate = Residual(dim), ConvBn((paths + 1) * dim, out)

    def forward(self, x):
        maps = [self.InvRes(x[0])] + [b(p) for b, p in zip(self.mhca_blks, x)]
        return self.aggregate(torch.cat(maps, 1))


class Mpvit(nn.Module):
    def __init__(self, dims, paths, layers, ratios, classes, heads=8,
                 kernels=((3, 2), (5, 3), (7, 3))):
        super().__init__()
        half = dims[0] // 2
        self.stem = nn.Sequential(ConvBn(3, half, 3, 2), ConvBn(half, dims[0], 3, 2))
        self.patch_embed_stages, self.mhca_stages = nn.ModuleList(), nn.ModuleList()
        for i, (dim, p, n, ratio) in enumerate(zip(dims, paths, layers, ratios)):
            steps = nn.Module()
            strides = [2 if i > 0 and j == 0 else 1 for j in range(p)]
            steps.patch_embeds = nn.ModuleList(Patches(dim, stride) for stride in strides)
            self.patch_embed_stages.append(steps)
            out = dims[min(i + 1, 3)]
            self.mhca_stages.append(MpvitStage(dim, out, heads, ratio, n, p, kernels))
        self.cls_head = nn.Module()
        self.cls_head.cls = nn.Linear(dims[3], classes)

    def forward(self, x):
        x = self.stem(x)
        for steps, stage in zip(self.patch_embed_stages, self.mhca_stages):
            paths = []
            for step in steps.patch_embeds:
                x = step(x)
                paths.append(x)
            x = stage(paths)
        return self.cls_head.cls(x.mean((2, 3)))


# ---- checking and timing ----


def torchvision(name):
    def make():
        import torchvision.models

        model = getattr(torchvision.models, name)()
        for m in model.modules():
            if isinstance(m, torchvision.ops.StochasticDepth):
                m.p = 0.0
        return model

    return make


def timm(name):
    def make():
        import timm

        options = {} if name.startswith("vit") else {"drop_path_rate": 0.0}
        return timm.create_model(name, **options)

    return make


MODELS = {
    "resnet50": torchvision("resnet50"),
    "resnet50-timm": timm("resnet50"),
    "deit-s": timm("deit_small_patch16_224"),
    "swin-t": timm("swin_tiny_patch4_window7_224"),
    "swin-t-torchvision": torchvision("swin_t"),
    "pvt2-b1": timm("pvt_v2_b1"),
    "cswin-t": lambda: Cswin(64, [1, 2, 21, 1], [1, 2, 7, 7], [2, 4, 8, 16], 4, 224, 1000),
    "coat-lite-small": timm("coat_lite_small"),
    "mpvit-xs": lambda: Mpvit([64, 128, 192, 256], [2, 3, 3, 3], [1, 2, 4, 1], [4, 4, 4, 4], 1000),
}


def from_case(meta, _):
    ints = lambda key: [int(n) for n in meta[key].split(",")]
    if meta["kind"].endswith("cswin_model"):
        ratio, image = float(meta["mlp_ratio"]), int(meta["image"])
        lists = ints("depth"), ints("split_size"), ints("heads")
        return Cswin(int(meta["dim"]), *lists, ratio, image, int(meta["classes"]))
    kernels = [(int(k), n) for k, n in json.loads(meta["crpe_window"]).items()]
    sizes = [ints(key) for key in ("dims", "paths", "layers", "mlp_ratios")]
    return Mpvit(*sizes, int(meta["classes"]), int(meta["heads"]), kernels)


def check(folder):
    check_images(folder, ("cswin_model", "mpvit_model_train", "mpvit_model_eval"), from_case)


def bench(args):
    model = MODELS[args.bench]()
    weights = sum(t.numel() * t.element_size() for t in model.state_dict().values()) / 2**20
    base = training_step.resident_mb() - weights
    layout = training_step.layout(args)
    model = model.to(args.device, memory_format=layout)
    optimiser = training_step.adamw(model)
    run = training_step.compiled(model, args)
    x = torch.randn(args.batch, 3, 224, 224, device=args.device).to(memory_format=layout)
    y = torch.randint(1000, (args.batch,), device=args.device)
    loss = lambda x, y: F.cross_entropy(run(x).float(), y)
    times = training_step.times(args, optimiser, lambda: (x, y), loss)
    seconds = training_step.median(times)
    training_step.report(
        args, model=args.bench, dtype=args.dtype, batch=args.batch, threads=args.threads,
        seconds=seconds, fastest=times[0], images_per_s=args.batch / seconds,
        peak_mb=training_step.peak_mb(args), base_mb=base)


def main():
    training_step.run(training_step.parser(__doc__, 8, MODELS, without=()), check, bench)


if __name__ == "__main__":
    main()
