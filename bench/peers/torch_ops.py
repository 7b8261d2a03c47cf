"""The ops of tapegrad in PyTorch: a function of each op's tensors and options.

Tensors are in the order of the prototype, None where absent. Options have its names; omitted ones
have the default value of tools/op_calls/op_calls.h. Both the comparison (tests/compare) and the
benchmark (ops_pytorch.py) call these functions, so they are as fast as a model would write them.
Maps are channels last.

    OPS["softmax"](x)        OPS["cumsum"](x, axis=1)        OPS["conv2d"](x, w, None, pad=[1, 1])
"""
import functools
import math

import torch
import torch.nn.functional as F

OPS = {name: getattr(torch, name) for name in (
    "neg exp log sqrt square abs relu sigmoid tanh expm1 log1p reciprocal rsqrt floor round sign "
    "sin cos logical_not isnan isfinite isinf").split()}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64,
          "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}


def op(f):
    """Puts a function into the table; a trailing underscore avoids Python's own names."""
    OPS[f.__name__.rstrip("_")] = f
    return f


def first(x):
    """[B,..,C] to [B,C,..]"""
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


# ---- elementwise ----

OPS |= {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardswish": F.hardswish, "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x), "mish": F.mish,
    "softplus": lambda x: F.softplus(x, threshold=1e9),
    "scale": lambda x, k: k * x, "leaky_relu": lambda x, k: F.leaky_relu(x, k),
    "elu": lambda x, k: F.elu(x, k),
    "clamp": lambda x, lo, hi: x.clamp(lo, hi),
    "cast": lambda x, dt: x.to(DTYPES[dt]),
    "masked_fill": lambda x, mask, k: x.masked_fill(mask != 0, k),
    "glu": lambda x, axis: F.glu(x, axis),
    "dropout_add": lambda x, scale, r, p: r + F.dropout(x, p),
}


def of_operands(f):
    """An absent operand is the number k."""
    def apply(a=None, b=None, k=0.0):
        number = torch.tensor(k, dtype=torch.float64)
        return f(number if a is None else a, number if b is None else b)
    return apply


OPS |= {name: of_operands(getattr(torch, name)) for name in (
    "add sub mul div pow maximum minimum eq ne lt le gt ge logical_and logical_or "
    "logical_xor").split()}


@op
def where(mask, a=None, b=None, k=0.0):
    number = k if (b if a is None else a).is_floating_point() else int(k)
    return torch.where(mask != 0, number if a is None else a, number if b is None else b)


# ---- reductions, and functions along an axis ----

def axes_of(x, axes):
    if axes is None:
        return list(range(x.ndim))
    return [i % x.ndim for i in ([axes] if isinstance(axes, int) else axes)]


def along_one(f):
    """f reduces one axis; several are merged."""
    def apply(x, axes=None, keep=False):
        over = sorted(axes_of(x, axes))
        if len(over) == 1:
            y = f(x, over[0])
        else:
            kept = [i for i in range(x.ndim) if i not in over]
            y = f(x.permute(kept + over).flatten(len(kept)), -1)
        return y.reshape([1 if i in over else n for i, n in enumerate(x.shape)]) if keep else y
    return apply


def along_all(f):
    return lambda x, axes=None, keep=False: f(x, axes_of(x, axes), keep)


OPS |= {"prod": along_one(torch.prod), "argmax": along_one(torch.argmax),
        "argmin": along_one(torch.argmin)}
OPS |= {name: along_all(f) for name, f in (
    ("sum", torch.sum), ("mean", torch.mean), ("logsumexp", torch.logsumexp), ("max", torch.amax),
    ("min", torch.amin), ("any", lambda *x: torch.any(*x).to(torch.uint8)),
    ("all", lambda *x: torch.all(*x).to(torch.uint8)))}
OPS |= {name: lambda x, correction, axes=None, keep=False, f=f:
        f(x, axes_of(x, axes), correction=correction, keepdim=bool(keep))
        for name, f in (("var", torch.var), ("std", torch.std))}
OPS |= {
    "cumsum": lambda x, axis: x.cumsum(axis), "cumprod": lambda x, axis: x.cumprod(axis),
    "sort": lambda x, axis, descending=False:
        tuple(torch.sort(x, dim=axis, descending=bool(descending), stable=True)),
    "argsort": lambda x, axis, descending=False:
        x.argsort(dim=axis, descending=bool(descending), stable=True),
    "topk": lambda x, k, axis, largest=False: tuple(x.topk(k, axis, bool(largest))),
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
}


@op
def norm(x, p, axes=None, keep=False):
    """JSON has no infinity: a negative p stands for it."""
    return torch.linalg.vector_norm(x, math.inf if p < 0 else p, axes_of(x, axes), bool(keep))


# ---- moves of elements ----


def segments(x, i, n, how):
    return x.new_zeros(n, *x.shape[1:]).index_reduce(0, i, x, how, include_self=False)


OPS |= {
    "permute": lambda x, order: x.permute(order).contiguous(),
    "slice": lambda x, axis, start, count: x.narrow(axis, start, count),
    "concat": lambda *x, axis: torch.cat(x, axis), "stack": lambda *x, axis: torch.stack(x, axis),
    "split_sizes": lambda x, axis, sizes: x.split(sizes, axis),
    "chunk": lambda x, axis, n: x.chunk(n, axis),
    "expand": lambda x, shape: x.expand(shape), "roll": lambda x, axis, shift: x.roll(shift, axis),
    "gather": lambda x, i, axis: x.gather(axis, i),
    "scatter_add": lambda x, i, y, axis: x.scatter_add(axis, i, y),
    "index_select": lambda x, i, axis: x.index_select(axis, i),
    "index_add": lambda x, i, y, axis: x.index_add(axis, i, y),
    "segment_max": lambda x, i, n: segments(x, i, n, "amax"),
    "segment_mean": lambda x, i, n: segments(x, i, n, "mean"),
    "flip": lambda x, axes: x.flip(axes), "repeat": lambda x, times: x.repeat(times),
    "repeat_interleave": lambda x, axis, times: x.repeat_interleave(times, axis),
    "unsqueeze": lambda x, axis: x.unsqueeze(axis),
    "flatten": lambda x, first, last: x.flatten(first, last),
    "squeeze": lambda x, axes: x.squeeze(axes) if axes else x.squeeze(),
    "transpose": lambda x, a, b: x.transpose(a, b),
    "tril": lambda x, diagonal=0: x.tril(diagonal), "triu": lambda x, diagonal=0: x.triu(diagonal),
    "embedding": lambda w, i, scale: F.embedding(i, w) if scale == 1 else scale * F.embedding(i, w),
    "arange": lambda end, step, dt="f64", start=0: torch.arange(start, end, step, dtype=DTYPES[dt]),
    "linspace": lambda first, last, n, dt="f64": torch.linspace(first, last, n, dtype=DTYPES[dt]),
    "rand": lambda s, dt: torch.rand(s, dtype=DTYPES[dt]),
    "randn": lambda s, dt: torch.randn(s, dtype=DTYPES[dt]),
}


@op
def split(x, axis, n):
    size = x.shape[axis] // n
    return x.split(size, axis) if size else [x] * n


@op
def pad(x, axis, before, after, value):
    sizes = [0] * (2 * x.ndim)
    at = 2 * (x.ndim - 1 - axis % x.ndim)
    sizes[at], sizes[at + 1] = before, after
    return F.pad(x, sizes, value=value)


@op
def pad_nd(x, before, after, mode, value=0.0):
    """Except with a constant, PyTorch pads the last one to three axes, after batch and channels."""
    sizes = list(zip(before, after)) + [(0, 0)] * (x.ndim - len(before))
    maps = mode != "constant" and sizes[-1] == (0, 0) and x.ndim > 2
    if maps:
        x, sizes = first(x), [sizes[0], sizes[-1], *sizes[1:-1]]
    flat = [n for pair in reversed(sizes if mode == "constant" else sizes[2:]) for n in pair]
    y = F.pad(x, flat, mode=mode, value=value if mode == "constant" else None)
    return last(y) if maps else y


# ---- products and norms ----

GATES = {"sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu, "relu": F.relu}

OPS |= {
    "einsum": lambda *x, spec: torch.einsum(spec, *x),
    "matmul": lambda a, b, ta=False, tb=False: (a.mT if ta else a) @ (b.mT if tb else b),
    "rmsnorm": lambda x, w=None, eps=0.0: F.rms_norm(x, x.shape[-1:], w, eps),
    "layernorm": lambda x, w=None, b=None, eps=0.0: F.layer_norm(x, x.shape[-1:], w, b, eps),
    "instancenorm": lambda x, w=None, b=None, eps=0.0:
        last(F.instance_norm(first(x), None, None, w, b, eps=eps)),
    "groupnorm": lambda x, w=None, b=None, groups=1, eps=0.0:
        last(F.group_norm(first(x), groups, w, b, eps)),
    "batchnorm": lambda x, w, b, mean, var, momentum, eps:
        last(F.batch_norm(first(x), mean, var, w, b, True, momentum, eps)),
}


@op
def linear(x, w, b=None, act="none"):
    y = F.linear(x, w, b)
    return y if act == "none" else GATES[act](y)


@op
def glu_linear(x, w, b=None, up=None, b_up=None, kind="sigmoid"):
    if up is None:
        g, u = F.linear(x, w, b).chunk(2, -1)
    else:
        g, u = F.linear(x, w, b), F.linear(x, up, b_up)
    return GATES[kind](g) * u


# ---- maps and sequences ----

def convolution(f):
    def apply(x, w, b=None, stride=1, pad=0, dilation=1, groups=0):
        return last(f(first(x), w, b, stride, pad, dilation, max(groups, 1)))
    return apply


def transposed(f):
    def apply(x, w, b=None, stride=1, pad=0, dilation=1, groups=0, output_pad=0):
        return last(f(first(x), w, b, stride, pad, output_pad, max(groups, 1), dilation))
    return apply


OPS |= {"conv1d": convolution(F.conv1d), "conv2d": convolution(F.conv2d),
        "conv_transpose1d": transposed(F.conv_transpose1d),
        "conv_transpose2d": transposed(F.conv_transpose2d),
        "depthwise_conv2d": lambda x, w, b=None, **o:
            OPS["conv2d"](x, w, b, groups=x.shape[-1], **o)}


@op
def conv2d_relu(x, w, b=None, residual=None, **options):
    y = OPS["conv2d"](x, w, b, **options)
    return F.relu(y if residual is None else y + residual)


@op
def max_pool2d(x, kernel, stride=None, pad=0, ceil=False):
    return last(F.max_pool2d(first(x), kernel, stride, pad, ceil_mode=bool(ceil)))


@op
def avg_pool2d(x, kernel, stride=None, pad=0, ceil=False, ignore_pad=False):
    return last(F.avg_pool2d(first(x), kernel, stride, pad, bool(ceil), not ignore_pad))


OPS |= {
    "adaptive_max_pool2d": lambda x, height, width:
        last(F.adaptive_max_pool2d(first(x), (height, width))),
    "adaptive_avg_pool2d": lambda x, height, width:
        last(F.adaptive_avg_pool2d(first(x), (height, width))),
}


@op
def interpolate(x, height, width, mode="bilinear", align_corners=False):
    corners = None if mode.startswith("nearest") else bool(align_corners)
    return last(F.interpolate(first(x), (height, width), mode=mode, align_corners=corners))


@op
def roi_align(x, boxes, place, size, scale, samples, aligned):
    import torchvision  # only this op needs it
    rois = torch.cat([place[:, :1].to(x), boxes], 1)
    return last(torchvision.ops.roi_align(first(x), rois, size, scale, samples, aligned))


def recurrent(f, states):
    """What torch.nn.LSTM and torch.nn.GRU call: one layer, batch first, from zeros."""
    def apply(x, *weights):
        h = x.new_zeros(1, x.shape[0], weights[1].shape[1])
        return f(x, states(h), weights, True, 1, 0.0, True, False, True)[0]
    return apply


OPS |= {"lstm": recurrent(torch.lstm, lambda h: (h, h)), "gru": recurrent(torch.gru, lambda h: h)}


# ---- attention ----

def heads_of(x, heads):
    """[B,N,H*D] to [B,H,N,D]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def packed(y):
    return y.transpose(1, 2).flatten(2)


def slopes_of(heads):
    """As in ALiBi's published code."""
    def power(n):
        start = 2 ** (-2 ** -(math.log2(n) - 3))
        return [start * start ** i for i in range(n)]
    if math.log2(heads).is_integer():
        return power(heads)
    near = 2 ** math.floor(math.log2(heads))
    return power(near) + slopes_of(2 * near)[0::2][:heads - near]


@functools.lru_cache(4)
def alibi_bias(heads, n, s, causal, dtype, device):
    """[1,H,n,S], the same for all calls; queries are the last rows."""
    at = torch.arange(s, device=device)
    query = at[s - n:, None] if s >= n else torch.arange(s - n, s, device=device)[:, None]
    distance = query - at
    slopes = torch.tensor(slopes_of(heads), dtype=dtype, device=device)
    bias = -slopes[:, None, None] * distance.abs()
    return (bias.masked_fill(distance < 0, -torch.inf) if causal else bias)[None]


@op
def attention(q, k, v, mask=None, bias=None, heads=1, kv_heads=0, causal=False, alibi=False,
              keys=0):
    n, s, kv = q.shape[1], keys or k.shape[1], kv_heads or heads
    q, k, v = heads_of(q, heads), heads_of(k[:, :s], kv), heads_of(v[:, :s], kv)
    add, ahead = None, bool(causal) and n == s
    if bias is not None and bias.ndim == 1:  # slopes
        distance = torch.arange(s - n, s)[:, None] - torch.arange(s)
        bias = -bias[:, None, None] * distance.abs()
    if alibi:
        add, ahead = alibi_bias(heads, n, s, bool(causal), q.dtype, q.device), False
    elif bias is not None or mask is not None or ahead != bool(causal):
        add, ahead = q.new_zeros(1, 1, n, s) if bias is None else bias[None], False
        if causal:
            add = add.masked_fill(torch.ones(n, s, device=q.device).triu(1 + s - n) > 0, -torch.inf)
    if mask is not None:
        add = add.masked_fill(mask[:, None, None] == 0, -torch.inf)
    y = F.scaled_dot_product_attention(q, k, v, add, is_causal=ahead, enable_gqa=kv != heads)
    return packed(y)


def buckets_of(n, chunk, longest):
    power = (2 * (n // chunk)).bit_length() - 1
    two = 2 ** power > 2 * max(math.isqrt((longest or n) // chunk), chunk)
    return [2 ** (power // 2), 2 ** (power - power // 2)] if two else [2 ** power]


@op
def lsh_attention(qk, v, rotations=None, mask=None, heads=1, chunk=64, rounds=2, buckets=None,
                  longest=0):
    """Reformer's attention; padding has an extra bucket."""
    n, size = qk.shape[1], qk.shape[2] // heads
    x, v = heads_of(qk, heads), heads_of(v, heads)
    key = F.rms_norm(x, x.shape[-1:], eps=1e-6) * size ** -0.5
    if n <= chunk:
        s = x @ key.transpose(-1, -2)
        if mask is not None:
            s = s.masked_fill(mask[:, None, None] == 0, -1e9)
        return packed(s.masked_fill(torch.eye(n, device=x.device) > 0, -1e5).softmax(-1) @ v)
    factors = [f for f in buckets if f] if buckets else buckets_of(n, chunk, longest)
    rounds, count = rotations.shape[2], math.prod(factors)
    with torch.no_grad():
        bucket, at, times = 0, 0, 1
        for f in factors:
            z = torch.einsum("bhnd,hdrf->bhrnf", x, rotations[..., at:at + f // 2])
            bucket = bucket + times * torch.cat([z, -z], -1).argmax(-1)
            at, times = at + f // 2, times * f
        if mask is not None:
            bucket = bucket.masked_fill(mask[:, None, None] == 0, count)
        bucket = bucket + (count + 1) * torch.arange(rounds, device=x.device)[:, None]
        order = bucket.flatten(2).argsort(stable=True)
        undo, order = order.argsort(), order % n

    def cut(t):
        return t.take_along_dim(order[..., None], 2).unflatten(2, (-1, chunk))

    def look(t):
        return torch.cat([t.roll(1, 2), t], 3)
    place = order.unflatten(2, (-1, chunk))
    s = cut(x) @ look(cut(key)).transpose(-1, -2)
    if mask is not None:
        hidden = mask[:, None, :].expand(-1, heads, -1).take_along_dim(order, 2)
        hidden = hidden.unflatten(2, (-1, chunk)) == 0
        s = s.masked_fill(look(hidden)[..., None, :], -1e9)
    s = s.masked_fill(place[..., None] == look(place)[..., None, :], -1e5)
    lse = s.logsumexp(-1, keepdim=True)
    y = ((s - lse).exp() @ look(cut(v))).flatten(2, 3)
    y, lse = (t.take_along_dim(undo[..., None], 2).unflatten(2, (rounds, n))
              for t in (y, lse.flatten(2, 3)))
    return packed((lse.softmax(2) * y).sum(2))


@op
def linear_attention(q, k, v, projection=None, mask=None, heads=1, features="elu", scale=0.0,
                     normalise=False, eps=0.0):
    """Gradients treat the maxima of positive features as constants."""
    q, k, v = (heads_of(x, heads) for x in (q, k, v))
    scale = scale or (k.shape[2] ** -0.5 if features == "elu" else q.shape[-1] ** -0.25)
    eps = eps or (1e-4 if features == "positive" else 1e-3)
    real = 1 if mask is None else mask[:, None, :, None].to(q.dtype)
    v = v if mask is None else v * real

    def random(x, axes):
        u = x @ projection.detach().T
        if features == "relu":
            return u.relu() + eps
        largest = u.detach().amax(axes, keepdim=True)
        return torch.exp(u - x.square().sum(-1, keepdim=True) / 2 - largest) + eps
    if features == "elu":
        q, k = F.elu(q) + 1, (F.elu(k) + 1) * real
    else:
        q, k = random(scale * q, -1), random(scale * k * real, (-1, -2))
    y = q @ (k.transpose(-1, -2) @ v)
    y = scale * y if features == "elu" and not normalise else y / (q @ k.sum(2)[..., None])
    return packed(y)


@op
def layernorm_kv(k, v, w=None, b=None, eps=0.0):
    return tuple(F.layer_norm(x, x.shape[-1:], w, b, eps) for x in (k, v))


@op
def chunk_project_kv(k, v, scores, mask=None, heads=1, chunk=1, rank=1):
    b, n, width = k.shape
    z = scores.view(b, n // chunk, chunk, heads, rank)
    if mask is not None:
        z = z.masked_fill(mask.view(b, n // chunk, chunk, 1, 1) == 0, -torch.inf)
    p = z.softmax(2).permute(0, 1, 3, 4, 2)  # [B,chunks,H,R,chunk]

    def project(x):
        y = p @ x.view(b, n // chunk, chunk, heads, -1).transpose(2, 3)
        return y.transpose(2, 3).reshape(b, n // chunk * rank, width)
    return project(k), project(v)


# ---- losses ----

REDUCTIONS = {"mean": "mean", "sum": "sum", "each": "none"}


def loss(f):
    """f of x and a detached target. The mean of no elements is 0 here, NaN in PyTorch."""
    def apply(x, target, reduction="mean", **options):
        how = "sum" if reduction == "mean" and x.numel() == 0 else REDUCTIONS[reduction]
        return f(x, target.detach(), reduction=how, **options)
    return apply


def reduced(y, reduction):
    return y if reduction == "each" else y.mean() if reduction == "mean" and y.numel() else y.sum()


def of_rows(f):
    """f of x [..,V] and targets [..]."""
    def apply(x, target, reduction="mean", smoothing=0.0):
        more = {"label_smoothing": smoothing} if smoothing else {}
        x = x.float() if x.dtype == torch.bfloat16 else x
        how = REDUCTIONS[reduction]
        y = f(x.reshape(-1, x.shape[-1]), target.long().reshape(-1), reduction=how, **more)
        return y.reshape(target.shape) if reduction == "each" else y
    return apply


OPS |= {
    "mse": loss(F.mse_loss), "smooth_l1": loss(F.smooth_l1_loss), "kl_div": loss(F.kl_div),
    "bce": loss(F.binary_cross_entropy), "bce_logits": loss(F.binary_cross_entropy_with_logits),
    "soft_margin": loss(F.soft_margin_loss), "hinge_embedding": loss(F.hinge_embedding_loss),
    "poisson_nll": loss(lambda x, t, reduction, rate, full, eps:
                        F.poisson_nll_loss(x, t, log_input=not rate, full=full, eps=eps,
                                           reduction=reduction)),
    "hinge": lambda x, t, margin, reduction="mean":
        reduced((margin - t.detach() * x).clamp_min(0), reduction),
    "cross_entropy": of_rows(F.cross_entropy), "nll": of_rows(F.nll_loss),
    "cosine_similarity": lambda a, b, eps: F.cosine_similarity(a, b, -1, eps),
    "margin_ranking": lambda a, b, t, margin, reduction="mean":
        reduced(F.margin_ranking_loss(a, b, t.detach(), margin, reduction="none"), reduction),
    "cosine_embedding": lambda a, b, t, margin, reduction="mean":
        reduced(F.cosine_embedding_loss(a, b, t.detach(), margin, reduction="none"), reduction),
}


@op
def triplet_margin(a, b, c, margin, p=2.0, swap=False, reduction="mean"):
    how = "sum" if reduction == "mean" and a.numel() == 0 else REDUCTIONS[reduction]
    return F.triplet_margin_loss(a, b, c, margin, p, swap=bool(swap), reduction=how)


@op
def focal(x, target, alpha, gamma, reduction="mean"):
    """torchvision's sigmoid_focal_loss of one-hot rows; class V is the background, negative classes
    do not count."""
    target, v = target.long(), x.shape[-1]
    hot = F.one_hot(target.clamp(min=0), v + 1)[..., :v].to(x.dtype)
    p = x.sigmoid()
    p = p * hot + (1 - p) * (1 - hot)
    y = F.binary_cross_entropy_with_logits(x, hot, reduction="none") * (1 - p) ** gamma
    if alpha >= 0:
        y = y * (alpha * hot + (1 - alpha) * (1 - hot))
    return reduced(y.sum(-1) * (target >= 0), reduction)


@op
def giou(x, target, eps, reduction="mean"):
    """torchvision's generalized_box_iou_loss."""
    (a, b, c, d), (e, f, g, h) = x.unbind(-1), target.detach().unbind(-1)
    wide = (torch.min(c, g) - torch.max(a, e)).clamp(min=0)
    inner = wide * (torch.min(d, h) - torch.max(b, f)).clamp(min=0)
    union = (c - a) * (d - b) + (g - e) * (h - f) - inner
    outer = (torch.max(c, g) - torch.min(a, e)) * (torch.max(d, h) - torch.min(b, f))
    return reduced(1 - inner / (union + eps) + (outer - union) / (outer + eps), reduction)


@op
def dice(x, target, axes, smooth, reduction="mean"):
    """PyTorch has no Dice loss: the formula of Milletari et al., over the last `axes` axes."""
    over, target = list(range(x.ndim - axes, x.ndim)), target.detach()
    total = (lambda v: v.sum(over)) if over else (lambda v: v)
    y = 1 - (2 * total(x * target) + smooth) / (total(x * x) + total(target * target) + smooth)
    return reduced(y, reduction)


@op
def ctc(x, target, rows, labels, blank, zero_infinity=False, reduction="mean"):
    """x: log-probabilities."""
    rows = torch.full((x.shape[0],), x.shape[1]) if rows is None else rows.long()
    return F.ctc_loss(x.transpose(0, 1), target.long(), rows, labels.long(), blank,
                      reduction=REDUCTIONS[reduction], zero_infinity=bool(zero_infinity))
