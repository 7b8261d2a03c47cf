"""Cases of bench_ops that need other functions or inputs in PyTorch than torch_ops.py has."""
import functools

import torch
import torch.nn.functional as F

from torch_ops import OPS as TORCH
from torch_ops import first, heads_of, last

MAPS = {"conv2d", "conv2d_relu", "depthwise_conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d",
        "adaptive_max_pool2d", "adaptive_avg_pool2d", "unfold", "fold", "interpolate", "roi_align",
        "batchnorm", "groupnorm", "instancenorm"}
PLANES = {"unfold", "fold"}  # of MAPS: PyTorch's own layout is channels first

BIAS, TABLES = {}, {}


def rotary(x, heads):
    """As in models: cosines and sines of all positions are computed once."""
    q = heads_of(x, heads)
    if x.shape not in TABLES:
        rates = 10000 ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        angles = (torch.arange(x.shape[1])[:, None] * rates).repeat(1, 2)
        TABLES[x.shape] = angles.cos(), angles.sin()
    cos, sin = TABLES[x.shape]
    a, b = q.chunk(2, -1)
    return (q * cos + torch.cat((-b, a), -1) * sin).transpose(1, 2)


@functools.cache
def regions():
    """512 regions of 60 to 220 pixels of two images of 512 x 512, as in bench/op_cases.c."""
    rows = []
    for r in range(512):
        w, h = 60 + r * 53 % 161, 60 + r * 97 % 161
        left, top = r * 149 % 293 * (512 - w) / 293, r * 211 % 307 * (512 - h) / 307
        rows.append([r % 2, left, top, left + w, top + h])
    return torch.tensor(rows)


def pool_regions(x, side):
    import torchvision  # only this op needs it
    return last(torchvision.ops.roi_align(first(x), regions().to(x), side, 0.125, 0, True))


def unfold(x, kernel, stride=1, pad=0):
    return F.unfold(first(x), kernel, padding=pad, stride=stride)


def fold(x, height, width, kernel, pad=0):
    return F.fold(first(x).flatten(2), (height, width), kernel, padding=pad)


def sequence(q, k, v, low_k, low_v, w=8, **_):
    """Long-short attention of an encoder: windows of 2 w keys and low-rank keys in one softmax;
    padding is masked."""
    b, n, _ = q.shape

    def windows(x):
        x = F.pad(x, (0, 0, w // 2, w // 2)).unfold(2, 2 * w, w)
        return x.transpose(-2, -1)  # [B,H,N/w,2w,D]
    q, k, v, low_k, low_v = (heads_of(x, 2) for x in (q, k, v, low_k, low_v))
    q = q / 32 ** 0.5
    near = q.reshape(b, 2, n // w, w, 32) @ windows(k).transpose(-2, -1)
    hidden = F.pad(torch.zeros(n), (w // 2, w // 2), value=1.0).unfold(0, 2 * w, w).bool()
    near = near.masked_fill(hidden[:, None], float("-inf")).reshape(b, 2, n, 2 * w)
    p = torch.softmax(torch.cat([q @ low_k.transpose(-2, -1), near], -1), -1)
    r = low_k.shape[2]
    y = (p[..., r:].reshape(b, 2, n // w, w, 2 * w) @ windows(v)).reshape(b, 2, n, 32)
    return (p[..., :r] @ low_v + y).transpose(1, 2)


def band(q, k, v, heads, w=256, **_):
    """Longformer's windows: exactly w keys to either side. Each chunk of w queries gets three
    chunks of keys and a mask."""
    n = q.shape[1]

    def chunks(x, size):
        return x.unfold(1, size, w).flatten(0, 1).unflatten(1, (heads, -1)).transpose(-2, -1)
    if (n, w) not in BIAS:
        query = torch.arange(n).view(-1, w, 1)
        key = torch.arange(-w, n - w, w)[:, None, None] + torch.arange(3 * w)
        BIAS[n, w] = (((key - query).abs() <= w) & (key >= 0) & (key < n))[:, None]
    k, v = (chunks(F.pad(x, (0, 0, w, w)), 3 * w) for x in (k, v))
    return F.scaled_dot_product_attention(chunks(q, w), k, v, attn_mask=BIAS[n, w]).transpose(1, 2)


# 32 documents with the lengths of film reviews in words; PyTorch gets them padded.
REVIEWS = [43, 153, 323, 109, 221, 58, 162, 352, 116, 233, 69, 170, 389, 123, 247, 78, 179, 439,
           131, 262, 86, 188, 520, 138, 280, 94, 198, 709, 146, 300, 101, 209]
LONGEST = -(-max(REVIEWS) // 8) * 8


def padded_attention(q, k, v):
    seen = torch.arange(LONGEST) < torch.tensor(REVIEWS)[:, None]
    q, k, v = (heads_of(x, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None]).transpose(1, 2)


OPS = {
    "unfold": unfold, "fold": fold, "roi_align": pool_regions, "rotary": rotary,
    "window_attention_2d": None,
    "packed_attention": padded_attention, "packed_window_attention": sequence,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "chunk_project_kv": lambda *x, **o: torch.cat(TORCH["chunk_project_kv"](*x, **o), 1),
    "layernorm_kv": lambda *x, **o: torch.cat(TORCH["layernorm_kv"](*x, **o), 0),
}
CALLS = {  # for single cases
    ("window_attention", "4x4096 d64 h2 w8 r32"): sequence,
    ("window_attention", "Longformer 2048 d768 h12"): band,
}
# Replacements for the shapes of a case's inputs, by number of axes.
SHAPES = {(op, shape): {2: [len(REVIEWS), LONGEST, 64]} for op, shape in (
    ("packed_attention", "32 reviews d64 h2"),
    ("packed_window_attention", "32 reviews d64 h2 w8 r32"))}
UPDATES = {  # PyTorch's optimisers and their implementations; the fastest counts
    "adamw": (torch.optim.AdamW, ("foreach", "fused")),
    "rmsprop": (torch.optim.RMSprop, ("foreach",)),
    "adagrad": (torch.optim.Adagrad, ("foreach", "fused")),
    "adafactor": (torch.optim.Adafactor, ("foreach",)),
}
