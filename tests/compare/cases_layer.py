"""Products, norms, softmax, convolution, pooling, resizing, attention, modules.

Maps are channels last.
"""
import numpy as np
import torch
import torch.nn.functional as F

from draw import MEANT, Call, case
from torch_ops import OPS, first, last


@case("softmax", "log_softmax")
def softmax(d, _):
    return Call([d.normal(d.shape(1), 3)], {})


@case("einsum")
def einsum(d):
    letters = [d.pick("abcdefghijXYZ") for _ in range(d.int(2, 6))]
    size = {c: 0 if d.flag(0.03) else d.int(1, 3) for c in letters}
    dots = [d.int(1, 3) for _ in range(d.int(0, 2))]
    parts, arrays, used = [], [], []
    for _ in range(d.int(1, 4)):
        own = [d.pick(letters) for _ in range(d.int(0, 3))]
        own_size = {c: 1 if d.flag(0.1) else size[c] for c in own}
        at = d.int(0, len(own)) if dots and d.flag() else None
        front = dots[d.int(0, len(dots)):]
        if at is None:
            parts.append("".join(own))
            arrays.append(d.normal([own_size[c] for c in own]))
        else:
            parts.append("".join(own[:at]) + "..." + "".join(own[at:]))
            arrays.append(d.normal([own_size[c] for c in own[:at]] + front
                                   + [own_size[c] for c in own[at:]]))
        used += own
    spec = ",".join(parts)
    if d.flag(0.7):
        out = [c for c in sorted(set(used)) if d.flag()]
        d.rng.shuffle(out)
        if "..." in spec and d.flag(0.8):
            out.insert(d.int(0, len(out)), "...")
        spec += "->" + "".join(out)
    if d.flag(0.2):
        spec = spec.replace(",", " , ")
    return Call(arrays, {"spec": spec})


@case("matmul")
def matmul(d):
    lead, (m, k, n) = d.shape(0, 2, 3), [d.int(0 if d.flag(0.05) else 1, 20) for _ in range(3)]
    ta, tb = d.flag(), d.flag()
    a = d.normal([*lead, *((k, m) if ta else (m, k))])
    b = d.normal([*(lead if d.flag() else []), *((n, k) if tb else (k, n))])
    return Call([a, b], {"ta": ta, "tb": tb})


@case("linear")
def linear(d):
    k, n, act = d.int(1, 20), d.int(1, 20), d.pick(["none", "relu", "gelu"])
    b = d.normal([n]) if d.flag() else None
    return Call([d.normal([*d.shape(0, 3), k]), d.normal([n, k]), b], {"act": act})


@case("layernorm", "rmsnorm")
def norm(d, name):
    s, eps = [*d.shape(0, 3), d.int(2, 40)], d.pick([1e-5, 1e-3])
    w = d.normal(s[-1:]) if d.flag(0.7) else None
    if name == "rmsnorm":
        return Call([d.normal(s), w], {"eps": eps})
    b = d.normal(s[-1:]) if d.flag(0.7) else None
    return Call([d.normal(s), w, b], {"eps": eps})


@case("layernorm_kv")
def layernorm_kv(d):
    c, w, b = d.int(2, 40), d.flag(0.7), d.flag(0.7)
    return Call([*(d.normal([*d.shape(0, 3), c]) for _ in "kv"), d.normal([c]) if w else None,
                 d.normal([c]) if b else None], {"eps": d.pick([1e-5, 1e-3])})


MEANT["instancenorm"] = ("F.instance_norm of PyTorch 2.15 gives wrong gradients for a single image "
                         "if the gradient of its result is channels last; compared with "
                         "F.group_norm of one channel a group")


@case("instancenorm")
def instance_norm(d):
    s = [d.int(1, 3), d.int(1, 5), d.int(2, 5), d.int(1, 20)]
    w, b = (d.normal(s[-1:]), d.normal(s[-1:])) if d.flag() else (None, None)
    return Call([d.normal(s), w, b], {},
                lambda x, w=None, b=None: last(F.group_norm(first(x), s[-1], w, b)))


@case("groupnorm")
def group_norm(d):
    groups, eps = d.int(1, 5), d.pick([1e-5, 1e-3])
    s = [0 if d.flag(0.04) else d.int(1, 3),
         *([d.int(1, 20)] if d.flag() else [d.int(1, 6), d.int(1, 30)]), groups * d.int(1, 9)]
    w = d.normal(s[-1:]) if d.flag(0.7) else None
    b = d.normal(s[-1:]) if d.flag(0.7) else None
    return Call([d.normal(s), w, b], {"groups": groups, "eps": eps})


@case("conv2d")
def conv2d(d):
    groups = d.pick([1, 1, 2, 3])
    ci, co, k = groups * d.int(1, 4), groups * d.int(1, 5), [d.int(1, 4), d.int(1, 4)]
    stride, pad, dilation = ([d.int(*r), d.int(*r)] for r in ((1, 3), (0, 3), (1, 2)))
    size = [d.int(max(1, dilation[i] * (k[i] - 1) + 1 - 2 * pad[i]), 12) for i in (0, 1)]
    b = d.normal([co]) if d.flag() else None
    return Call([d.normal([d.int(0, 3), *size, ci]), d.normal([co, ci // groups, *k]), b],
                {"stride": stride, "pad": pad, "dilation": dilation,
                 "groups": groups if groups > 1 else 0})


@case("conv2d_relu")
def conv2d_relu(d):
    plain = conv2d(d)
    x, w, b = plain.inputs
    y = OPS["conv2d"](torch.as_tensor(x), torch.as_tensor(w), **plain.options)
    residual = d.normal(list(y.shape)) if d.flag(0.7) else None
    return Call([x, w, b, residual], plain.options)


@case("conv1d")
def conv1d(d):
    groups = d.pick([1, 1, 2, 3])
    ci, co, k = groups * d.int(1, 4), groups * d.int(1, 5), d.int(1, 4)
    stride, pad, dilation = d.int(1, 3), d.int(0, 3), d.int(1, 2)
    n = d.int(max(1, dilation * (k - 1) + 1 - 2 * pad), 30)
    b = d.normal([co]) if d.flag() else None
    return Call([d.normal([d.int(0, 3), n, ci]), d.normal([co, ci // groups, k]), b],
                {"stride": [stride], "pad": [pad], "dilation": [dilation],
                 "groups": groups if groups > 1 else 0})


@case("conv_transpose1d", "conv_transpose2d")
def conv_transpose(d, name):
    axes = range(1 if name == "conv_transpose1d" else 2)
    groups = d.pick([1, 1, 2, 3])
    ci, co, k = groups * d.int(1, 4), d.int(1, 5), [d.int(1, 4) for _ in axes]
    stride, dilation, size = ([d.int(1, most) for _ in axes] for most in (3, 3, 6))
    extra = [d.int(0, max(stride[i], dilation[i]) - 1) for i in axes]
    full = [(size[i] - 1) * stride[i] + dilation[i] * (k[i] - 1) + extra[i] + 1 for i in axes]
    pad = [d.int(0, min(3, (n - 1) // 2)) for n in full]
    b = d.normal([groups * co]) if d.flag() else None
    return Call([d.normal([d.int(1, 3), *size, ci]), d.normal([ci, co, *k]), b],
                {"stride": stride, "pad": pad, "dilation": dilation,
                 "groups": groups if groups > 1 else 0, "output_pad": extra})


@case("max_pool2d", "avg_pool2d")
def pool(d, name):
    k = [d.int(1, 4), d.int(1, 4)]
    stride, pad = [d.int(1, 3), d.int(1, 3)], [d.int(0, n // 2) for n in k]
    ceil = d.flag()
    least = [max(1, k[i] - 2 * pad[i] - (stride[i] - 1 if ceil else 0)) for i in (0, 1)]
    s = [d.int(1, 3), d.int(least[0], 9), d.int(least[1], 9), d.int(1, 20)]
    ignore = d.flag()
    if name == "max_pool2d":
        return Call([d.normal(s)], {"kernel": k, "stride": stride, "pad": pad, "ceil": ceil})
    return Call([d.normal(s)], {"kernel": k, "stride": stride, "pad": pad, "ignore_pad": ignore,
                                "ceil": ceil})


@case("adaptive_max_pool2d", "adaptive_avg_pool2d")
def adaptive_pool(d, _):
    s, size = [d.int(0, 3), d.int(1, 12), d.int(1, 12), d.int(1, 20)], [d.int(1, 9), d.int(1, 9)]
    return Call([d.normal(s)], {"height": size[0], "width": size[1]})


@case("unfold", "fold")
def unfold(d, name):
    k, stride, pad, dilation = ([d.int(*r), d.int(*r)] for r in ((1, 4), (1, 3), (0, 3), (1, 3)))
    span = [dilation[i] * (k[i] - 1) + 1 for i in (0, 1)]
    size = [d.int(max(1, span[i] - 2 * pad[i]), 10) for i in (0, 1)]
    count = [(size[i] + 2 * pad[i] - span[i]) // stride[i] + 1 for i in (0, 1)]
    b, c, taps = d.int(0, 3), d.int(1, 9), k[0] * k[1]
    options = {"kernel": k, "stride": stride, "pad": pad, "dilation": dilation}
    if name == "unfold":
        return Call([d.normal([b, *size, c])], options,
                    lambda x: F.unfold(first(x), k, dilation, pad, stride)
                    .reshape(b, c, taps, *count)
                    .permute(0, 3, 4, 2, 1).flatten(3))

    def fold(x):
        x = x.reshape(b, count[0] * count[1], taps, c).permute(0, 3, 2, 1).flatten(1, 2)
        return last(F.fold(x, size, k, dilation, pad, stride))
    return Call([d.normal([b, *count, taps * c])], {**options, "height": size[0], "width": size[1]},
                fold)


@case("interpolate")
def interpolate(d):
    s, size = [d.int(1, 2), d.int(1, 7), d.int(1, 7), d.int(1, 9)], [d.int(1, 12), d.int(1, 12)]
    mode = d.pick(["bilinear", "bicubic", "nearest", "nearest-exact"])
    corners = d.flag() and not mode.startswith("nearest")
    return Call([d.normal(s)], {"height": size[0], "width": size[1], "mode": mode,
                                "align_corners": corners})


@case("roi_align")
def roi_align(d):
    """Boxes inside a map, across its edges, outside. torchvision fails on inverted boxes."""
    b, h, w, n = d.int(1, 3), d.int(1, 12), d.int(1, 12), d.int(0, 9)
    scale, size = d.pick([0.125, 0.5, 1.0]), [d.int(1, 5), d.int(1, 5)]
    samples, aligned = d.int(0, 3), d.flag(0.7)
    centre = d.uniform([n, 2], -0.3, 1.3) * [w / scale, h / scale]
    half = d.uniform([n, 2], 0.0, 0.6) * [w / scale, h / scale]
    boxes = np.concatenate([centre - half, centre + half], 1)
    image = d.ints([n], b)
    return Call([d.normal([b, h, w, d.int(1, 9)]), boxes, np.stack([image, 0 * image], 1)],
                {"size": size, "scale": scale, "samples": samples, "aligned": aligned})


@case("attention")
def attention(d):
    heads, size, b = d.int(1, 4), d.int(1, 12), d.int(1, 3)
    n, s = d.int(1, 40), d.int(1, 40)
    causal = d.flag(0.4)
    s = n if causal else s
    mask = d.mask([b, s], 0.8) if d.flag(0.3) and not causal else None
    bias = d.normal([heads, n, s]) if d.flag(0.3) else None
    if mask is not None:
        mask[:, 0] = 1
    x = [d.normal([b, m, heads * size]) for m in (n, s, s)]
    return Call([*x, mask, bias], {"heads": heads, "causal": causal})


@case("embedding")
def embedding(d):
    n, scale = d.int(1, 9), d.real(0.5, 2)
    return Call([d.normal([n, d.int(1, 20)]), d.ints(d.shape(0, 3), n)], {"scale": scale})
