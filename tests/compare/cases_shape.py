"""Moves of elements: shapes, axes, indices."""
import numpy as np
import torch

from draw import Call, case


@case("permute")
def permute(d):
    s = d.shape(1, 5)
    order = [int(i) for i in d.rng.permutation(len(s))]
    return Call([d.normal(s)], {"order": order})


@case("slice")
def slice_(d):
    s = d.shape(1)
    axis = d.axis(s)
    start = d.int(0, s[axis])
    count = d.int(0, s[axis] - start)
    return Call([d.normal(s)], {"axis": axis, "start": start, "count": count})


@case("concat")
def concat(d):
    s = d.shape(1)
    axis = d.axis(s)
    parts = []
    for _ in range(d.int(1, 5)):
        s[axis] = d.int(0, 4)
        parts.append(d.normal(s))
    return Call(parts, {"axis": axis})


@case("stack")
def stack(d):
    s = d.shape(0, 4)
    axis = d.int(-len(s) - 1, len(s))
    return Call([d.normal(s) for _ in range(d.int(1, 5))], {"axis": axis})


@case("split")
def split(d):
    s, n = d.shape(1), d.int(1, 5)
    axis = d.axis(s)
    s[axis] *= n
    return Call([d.normal(s)], {"axis": axis, "n": n})


@case("expand")
def expand(d):
    s = d.shape(0, 4)
    from_ = [1 if d.flag(0.4) else n for n in s][d.int(0, len(s)) if d.flag(0.3) else 0:]
    return Call([d.normal(from_)], {"shape": s})


@case("roll")
def roll(d):
    s = d.shape(1)
    axis, shift = d.axis(s), d.int(-9, 9)
    return Call([d.normal(s)], {"axis": axis, "shift": shift})


@case("pad")
def pad(d):
    s = d.shape(1)
    axis, before, after, value = d.axis(s), d.int(0, 4), d.int(0, 4), d.real(-2, 2)
    return Call([d.normal(s)], {"axis": axis, "before": before, "after": after, "value": value})


@case("gather", "scatter_add")
def gather(d, name):
    s = d.shape(1, empty=0.0)
    axis = d.axis(s)
    t = [d.int(1, n) for n in s]
    t[axis] = d.int(0, 6)
    index = d.ints(t, s[axis], np.int64)
    if name == "gather":
        return Call([d.normal(s), index], {"axis": axis})
    return Call([d.normal(s), index, d.normal(t)], {"axis": axis})


@case("index_select", "index_add")
def index_rows(d, name):
    s = d.shape(1)
    axis = d.axis(s)
    n = d.int(0, 6) if s[axis] > 0 else 0
    index, t = d.ints([n], s[axis] or 1), list(s)
    t[axis] = n
    if name == "index_select":
        return Call([d.normal(s), index], {"axis": axis})
    return Call([d.normal(s), index, d.normal(t)], {"axis": axis})


@case("segment_max", "segment_mean")
def segments(d, name):
    s = d.shape(1)
    n = d.int(1, 6)
    return Call([d.normal(s), d.ints([s[0]], n, np.int64)], {"n": n})


@case("flip")
def flip(d):
    s = d.shape()
    axes = [i - len(s) if d.flag() else i for i in range(len(s)) if d.flag()] or list(range(len(s)))
    return Call([d.normal(s)], {"axes": axes})


@case("pad_nd", stored=8)
def pad_nd(d):
    mode = d.pick(["constant", "reflect", "replicate", "circular"])
    if mode == "constant":
        s = d.shape(1)
        before, after, value = [d.int(0, 3) for _ in s], [d.int(0, 3) for _ in s], d.real(-2, 2)
        return Call([d.normal(s)], {"mode": mode, "before": before, "after": after, "value": value})
    # PyTorch pads the last one to three axes, after a batch and channels.
    s = d.shape(3, 5, empty=0.0)
    if len(s) == 5:
        s = [min(n, 3) for n in s]
    most = [n - 1 if mode == "reflect" else n if mode == "circular" else 4 for n in s[2:]]
    before, after = [0, 0] + [d.int(0, n) for n in most], [0, 0] + [d.int(0, n) for n in most]
    return Call([d.normal(s)], {"mode": mode, "before": before, "after": after})


@case("repeat")
def repeat(d):
    s = d.shape(0, 3)
    times = [d.int(0 if d.flag(0.1) else 1, 3) for _ in range(len(s) + d.int(0, 2))]
    return Call([d.normal(s)], {"times": times})


@case("repeat_interleave")
def repeat_interleave(d):
    s = d.shape(1)
    axis, times = d.axis(s), d.int(0, 4)
    return Call([d.normal(s)], {"axis": axis, "times": times})


@case("split_sizes")
def split_sizes(d):
    s = d.shape(1)
    axis, sizes = d.axis(s), [d.int(0, 4) for _ in range(d.int(1, 5))]
    s[axis] = sum(sizes)
    return Call([d.normal(s)], {"axis": axis, "sizes": sizes})


@case("chunk")
def chunk(d):
    s = d.shape(1, size=9)
    axis, n = d.axis(s), d.int(1, 6)
    return Call([d.normal(s)], {"axis": axis, "n": n})


@case("unsqueeze", "squeeze", "flatten", "transpose")
def views(d, name):
    s = d.shape(1, 5)
    a, b = d.axis(s), d.axis(s)
    if name == "unsqueeze":
        axis = d.int(-len(s) - 1, len(s))
        return Call([d.normal(s)], {"axis": axis})
    if name == "squeeze":
        s = [1 if d.flag() else n for n in s]
        axes = [i for i, n in enumerate(s) if n == 1 and d.flag()]
        return Call([d.normal(s)], {"axes": axes})
    if name == "flatten":
        a, b = sorted((a % len(s), b % len(s)))
        return Call([d.normal(s)], {"first": a, "last": b})
    return Call([d.normal(s)], {"a": a, "b": b})


@case("tril", "triu")
def triangle(d, _):
    k = d.int(-7, 7)
    return Call([d.normal(d.shape(2, 4))], {"diagonal": k})


@case("arange")
def arange(d):
    start, step = d.real(-5, 5), d.pick([-1, 1]) * d.real(0.1, 2)
    end = start + step * d.real(-1, 30)
    count = max(0, int(np.ceil((end - start) / step)))  # torch refuses a wrong direction
    return Call([], {"start": start, "end": end, "step": step},
                lambda: start + step * torch.arange(count, dtype=torch.float64))


@case("linspace")
def linspace(d):
    first, last, n = d.real(-5, 5), d.real(-5, 5), d.int(0, 40)
    return Call([], {"first": first, "last": last, "n": n})
