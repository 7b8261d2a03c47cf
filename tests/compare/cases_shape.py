"""Moves of elements: shapes, axes, indices."""
import numpy as np
import torch

from draw import Call, case


@case("permute")
def permute(d):
    s = d.shape(1, 5)
    order = [int(i) for i in d.rng.permutation(len(s))]
    return Call([d.normal(s)], {"order": order}, lambda x: x.permute(order))


@case("slice")
def slice_(d):
    s = d.shape(1)
    axis = d.axis(s)
    start = d.int(0, s[axis])
    count = d.int(0, s[axis] - start)
    return Call([d.normal(s)], {"axis": axis, "start": start, "count": count},
                lambda x: x.narrow(axis, start, count))


@case("concat")
def concat(d):
    s = d.shape(1)
    axis = d.axis(s)
    parts = []
    for _ in range(d.int(1, 5)):
        s[axis] = d.int(0, 4)
        parts.append(d.normal(s))
    return Call(parts, {"axis": axis}, lambda *x: torch.cat(x, axis))


@case("stack")
def stack(d):
    s = d.shape(0, 4)
    axis = d.int(-len(s) - 1, len(s))
    return Call([d.normal(s) for _ in range(d.int(1, 5))], {"axis": axis}, lambda *x: torch.stack(x, axis))


@case("split")
def split(d):
    s, n = d.shape(1), d.int(1, 5)
    axis = d.axis(s)
    s[axis] *= n
    size = s[axis] // n
    return Call([d.normal(s)], {"axis": axis, "n": n}, lambda x: x.split(size, axis) if size else [x] * n)


@case("expand")
def expand(d):
    s = d.shape(0, 4)
    from_ = [1 if d.flag(0.4) else n for n in s][d.int(0, len(s)) if d.flag(0.3) else 0:]
    return Call([d.normal(from_)], {"shape": s}, lambda x: x.expand(s))


@case("roll")
def roll(d):
    s = d.shape(1)
    axis, shift = d.axis(s), d.int(-9, 9)
    return Call([d.normal(s)], {"axis": axis, "shift": shift}, lambda x: x.roll(shift, axis))


@case("pad")
def pad(d):
    s = d.shape(1)
    axis, before, after, value = d.axis(s), d.int(0, 4), d.int(0, 4), d.real(-2, 2)

    def padded(x):
        sizes = [0] * (2 * x.ndim)
        at = 2 * (x.ndim - 1 - axis % x.ndim)
        sizes[at], sizes[at + 1] = before, after
        return torch.nn.functional.pad(x, sizes, value=value)
    return Call([d.normal(s)], {"axis": axis, "before": before, "after": after, "value": value}, padded)


@case("gather", "scatter_add")
def gather(d, name):
    s = d.shape(1, empty=0.0)
    axis = d.axis(s)
    t = [d.int(1, n) for n in s]
    t[axis] = d.int(0, 6)
    index = d.ints(t, s[axis], np.int64)
    if name == "gather":
        return Call([d.normal(s), index], {"axis": axis}, lambda x, i: x.gather(axis, i))
    return Call([d.normal(s), index, d.normal(t)], {"axis": axis}, lambda x, i, y: x.scatter_add(axis, i, y))
