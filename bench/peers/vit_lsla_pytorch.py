"""ViT-LSLA in plain PyTorch, for comparison in benchmarks.

Written from the paper's equations with vectorised PyTorch ops and no custom kernels: windows are
cut out of the rolled map; scores and weights of all windows and heads are tensors.

    vit_lsla_pytorch.py --check DIR          compare with the reference cases in DIR (model_*)
    vit_lsla_pytorch.py --bench [options]    time a training step and print one JSON line
"""
import glob
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from reference_case import load_case, relative_error, stored_state
import training_step

PAPER = dict(
    image=(224, 224), classes=102, dim=96, depths=(2, 4, 8, 2), heads=(3, 6, 12, 24), window=7,
    mlp_ratio=2, variant="qxx", scale="dynamic", inner=1, outer=1, drop_path=0.0,
)


class Attention(nn.Module):
    """Tokens of windows [G,N,D] -> [G,N,D]; mask [windows of an image,N,N] or None."""

    def __init__(self, cfg, dim, heads, window):
        super().__init__()
        n, rows = window * window, (2 * window - 1) ** 2
        self.heads, self.window = heads, window
        self.fc_q = nn.Linear(dim, dim)
        if cfg["variant"] == "qkv":
            self.fc_k = nn.Linear(dim, dim)
        if cfg["variant"] in ("qkv", "qxv"):
            self.fc_v = nn.Linear(dim, dim)
        if cfg["variant"] in ("qkv", "qxx"):
            self.proj = nn.Linear(dim, dim)
        self.fixed = (dim // heads) ** -0.5
        if cfg["scale"] == "dynamic":
            self.dynamic_scale = nn.Parameter(torch.full((n, n), self.fixed))
        if cfg["inner"]:
            self.inner_relative_position_bias_table = nn.Parameter(torch.zeros(rows, heads))
        if cfg["outer"]:
            self.outer_relative_position_bias_table = nn.Parameter(torch.zeros(rows, heads))
        y, x = torch.arange(n) // window, torch.arange(n) % window
        place = (y[:, None] - y + window - 1) * (2 * window - 1) + x[:, None] - x + window - 1
        self.register_buffer("place", place, persistent=False)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def bias(self, kind):
        table = getattr(self, kind + "_relative_position_bias_table", None)
        return None if table is None else table[self.place].permute(2, 0, 1)

    def forward(self, x, mask):
        g, n, d = x.shape
        q, k = self.split(self.fc_q(x)), self.split(self.fc_k(x) if hasattr(self, "fc_k") else x)
        v = self.split(self.fc_v(x)) if hasattr(self, "fc_v") else self.split(x)
        z = q @ k.transpose(2, 3) * getattr(self, "dynamic_scale", self.fixed)
        inner, outer = self.bias("inner"), self.bias("outer")
        if inner is not None:
            z = z + inner
        if mask is not None:
            z = (z.view(-1, len(mask), self.heads, n, n) + mask[:, None]).view(z.shape)
        p = z.softmax(-1)
        if outer is not None:
            p = p + outer
        y = (p @ v).transpose(1, 2).reshape(g, n, d)
        return self.proj(y) if hasattr(self, "proj") else y


def cut(x, w):
    """[B,H,W,D] -> windows [G,w*w,D]."""
    b, h, width, d = x.shape
    return x.view(b, h // w, w, width // w, w, d).transpose(2, 3).reshape(-1, w * w, d)


def join(x, w, b, h, width):
    return x.view(b, h // w, width // w, w, w, -1).transpose(2, 3).reshape(b, h, width, -1)


def region_mask(h, width, w, shift):
    part = lambda n: torch.tensor([0 if i < n - w else 1 if i < n - shift else 2 for i in range(n)])
    region = cut((3 * part(h)[:, None] + part(width)).view(1, h, width, 1), w)[..., 0]
    return (region[:, :, None] != region[:, None, :]) * -100.0


class Block(nn.Module):
    """x [B,H,W,D] -> [B,H,W,D]."""

    def __init__(self, cfg, size, dim, heads, odd, drop_path):
        super().__init__()
        small = min(size) <= cfg["window"]
        self.window, self.drop_path = min(cfg["window"], *size), drop_path
        self.shift = self.window // 2 if odd and not small else 0
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(cfg, dim, heads, self.window)
        hidden = int(dim * cfg["mlp_ratio"])
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(dim, hidden), "fc2": nn.Linear(hidden, dim)})
        mask = region_mask(*size, self.window, self.shift) if self.shift else None
        self.register_buffer("mask", mask, persistent=False)

    def drop(self, x):
        if not self.training or self.drop_path == 0:
            return x
        keep = torch.rand(x.shape[0], 1, 1, 1, device=x.device) >= self.drop_path
        return x * keep / (1 - self.drop_path)

    def forward(self, x):
        b, h, width, _ = x.shape
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), (1, 2))
        y = join(self.attn(cut(y, self.window), self.mask), self.window, b, h, width)
        if self.shift:
            y = y.roll((self.shift, self.shift), (1, 2))
        x = x + self.drop(y)
        return x + self.drop(self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x)))))


class Downsample(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv2d(dim, 2 * dim, 3, 2, 1)
        self.norm = nn.LayerNorm(2 * dim)

    def forward(self, x):
        return self.norm(self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class ViT(nn.Module):
    """Images [B,3,H,W] -> logits."""

    def __init__(self, cfg):
        super().__init__()
        dim, depths = cfg["dim"], cfg["depths"]
        conv = lambda i, o: nn.ModuleDict({
            "conv": nn.Conv2d(i, o, 3, 2, 1, bias=False), "bn": nn.BatchNorm2d(o)})
        self.stem = nn.ModuleList([conv(3, dim // 2), conv(dim // 2, dim)])
        self.layers, done = nn.ModuleList(), 0
        size = [((n + 1) // 2 + 1) // 2 for n in cfg["image"]]
        for i, depth in enumerate(depths):
            rates = [cfg["drop_path"] * (done + j) / max(sum(depths) - 1, 1) for j in range(depth)]
            blocks = [Block(cfg, size, dim, cfg["heads"][i], j % 2 == 1, rate)
                      for j, rate in enumerate(rates)]
            layer = {"blocks": nn.ModuleList(blocks)}
            if i + 1 < len(depths):
                layer["downsample"] = Downsample(dim)
                dim, size = 2 * dim, [(n + 1) // 2 for n in size]
            self.layers.append(nn.ModuleDict(layer))
            done += depth
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, cfg["classes"])

    def forward(self, x):
        for part in self.stem:
            x = F.hardswish(part["bn"](part["conv"](x)))
        x = x.permute(0, 2, 3, 1)
        for layer in self.layers:
            for block in layer["blocks"]:
                x = block(x)
            if "downsample" in layer:
                x = layer["downsample"](x)
        return self.head(self.norm(x).mean((1, 2)))


def config(meta):
    c = dict(PAPER)
    for key in ("image", "depths", "heads"):
        c[key] = tuple(int(n) for n in meta[key].split(","))
    for key in ("classes", "dim", "window", "mlp_ratio", "inner", "outer"):
        c[key] = int(meta[key])
    return dict(c, variant=meta["variant"], scale=meta["scale"])


def check(folder):
    for path in sorted(glob.glob(os.path.join(folder, "model_*.safetensors"))):
        t, meta = load_case(path)
        model = ViT(config(meta)).double()
        model.train(meta["mode"] == "train")
        missing, extra = model.load_state_dict(stored_state(t), strict=False)
        if extra or any("num_batches" not in name for name in missing):
            sys.exit(f"{path}: names differ: {missing} {extra}")
        y, worst = model(t["input.image"]), 0.0
        (y * t["input.probe"]).sum().backward()
        pairs = [("output.y", y, t["output.y"])]
        zero = meta.get("zero_grads", "").split()
        pairs += [(k, p.grad, t["grad." + k]) for k, p in model.named_parameters() if k not in zero]
        for what, got, want in pairs:
            error = relative_error(got, want)
            if not error < 1e-6:
                sys.exit(f"{path} {what}: relative error {error:.2e}")
            worst = max(worst, error)
        print(f"{os.path.basename(path)}: {worst:.1e}")


def bench(args):
    layout = training_step.layout(args)
    model = ViT(dict(PAPER, drop_path=args.drop_path)).to(args.device, memory_format=layout)
    optimiser = training_step.adamw(model)
    run = training_step.compiled(model, args)
    x = torch.rand(args.batch, 3, 224, 224, device=args.device) * 2 - 1
    x, y = x.to(memory_format=layout), torch.arange(args.batch, device=args.device) * 7 % 102
    loss = lambda x, y: F.cross_entropy(run(x).float(), y)
    seconds = training_step.median(training_step.times(args, optimiser, lambda: (x, y), loss))
    training_step.report(
        args, model="vit_lsla", dtype=args.dtype, batch=args.batch, threads=args.threads,
        seconds=seconds, images_per_s=args.batch / seconds, peak_mb=training_step.peak_mb(args))


def main():
    p = training_step.parser(__doc__, 4, without=())
    p.add_argument("--drop-path", type=float, default=0.0)
    training_step.run(p, check, bench)


if __name__ == "__main__":
    main()
