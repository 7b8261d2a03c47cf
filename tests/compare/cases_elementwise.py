"""Elementwise ops of one and of two operands."""
import numpy as np
import torch

from draw import Call, case
from torch_ops import DTYPES

# name: range of the inputs
ONE = {
    "neg": (-3, 3), "exp": (-4, 4), "log": (0.01, 9), "sqrt": (0.01, 9), "square": (-3, 3),
    "abs": (-3, 3),
    "relu": (-3, 3), "gelu": (-6, 6), "gelu_tanh": (-6, 6), "quick_gelu": (-6, 6),
    "hardswish": (-6, 6),
    "silu": (-9, 9), "sigmoid": (-40, 40), "tanh": (-20, 20), "mish": (-9, 9),
    "softplus": (-30, 30),
    "expm1": (-2, 2), "log1p": (-0.9, 9), "reciprocal": (0.1, 9), "rsqrt": (0.01, 9),
    "floor": (-9, 9),
    "round": (-9, 9), "sign": (-3, 3), "sin": (-20, 20), "cos": (-20, 20),
}
TWO = "add sub mul div pow maximum minimum".split()
MASK = "eq ne lt le gt ge logical_and logical_or logical_xor".split()
ASK = "logical_not isnan isfinite isinf".split()


@case(*ONE)
def one(d, name):
    low, high = ONE[name]
    return Call([d.uniform(d.shape(), low, high)], {})


def shapes(d, n):
    """n shapes that broadcast to a common one: one has all its sizes, or each repeats an axis."""
    s = d.shape(0, 5)
    drawn = [d.broadcast(s) for _ in range(n)]
    if d.flag(0.7):
        drawn[d.int(0, n - 1)] = s
    return drawn


def drop_one(d, inputs, first=0):
    """Replaces one of two operands by a number with a probability of 0.3."""
    if d.flag(0.3):
        inputs[first + d.int(0, 1)] = None
    return inputs


@case(*TWO)
def two(d, name):
    sa, sb = shapes(d, 2)
    a, b, k = d.normal(sa), d.normal(sb), d.pick([d.real(0.3, 3), 0.5, 1.0, 2.0, 3.0])
    if name == "div":
        b, k = b + (b > 0) - 0.5, d.pick([-1, 1]) * k
    if name in ("maximum", "minimum") and d.flag():  # ties
        a, b, k = np.rint(a), np.rint(b), float(d.int(-1, 1))
    inputs = drop_one(d, [a, b])
    if name == "pow":
        inputs[0] = None if inputs[0] is None else np.abs(a) + 0.2
        k = -k if inputs[1] is None and d.flag() else k
    return Call(inputs, {"k": k})


@case(*MASK)
def mask(d, _):
    sa, sb = shapes(d, 2)
    kind = d.pick(["float", "i32", "i64", "u8"])
    def values(s):
        if kind == "float":
            x = np.rint(d.normal(s, 1.5))
            return np.where(d.uniform(s, 0, 1) < 0.05, d.pick([np.nan, np.inf]), x)
        if kind == "u8":
            return d.mask(s)
        return d.ints(s, 4, {"i32": np.int32, "i64": np.int64}[kind]) - 1
    k = d.pick([-1.0, 0.0, 0.5, 1.0, 2.0, 300.0])
    return Call(drop_one(d, [values(sa), values(sb)]), {"k": k})


@case(*ASK)
def ask(d, _):
    s = d.shape()
    x = np.rint(d.normal(s))
    for special in (np.nan, np.inf, -np.inf):
        x = np.where(d.uniform(s, 0, 1) < 0.1, special, x)
    return Call([d.ints(s, 3) if d.flag(0.2) else x], {})


@case("where")
def where(d):
    sm, sa, sb = shapes(d, 3)
    whole = d.flag(0.2)
    a, b = ((d.ints(sa, 9, np.int64), d.ints(sb, 9, np.int64)) if whole
            else (d.normal(sa), d.normal(sb)))
    k = float(d.int(-3, 3)) if whole else d.real(-3, 3)
    return Call(drop_one(d, [d.mask(sm), a, b], 1), {"k": k})


@case("masked_fill")
def masked_fill(d):
    s = d.shape(0, 5)
    k = d.pick([d.real(-3, 3), -1e300])
    return Call([d.normal(s), d.mask(d.broadcast(s))], {"k": k})


@case("scale", "leaky_relu", "elu")
def number(d, _):
    k = d.real(0.01, 2)
    return Call([d.normal(d.shape())], {"k": k})


@case("clamp")
def clamp(d):
    lo = d.real(-2, 1)
    hi = lo + d.real(0, 2)
    return Call([d.normal(d.shape())], {"lo": lo, "hi": hi})


@case("cast")
def cast(d):
    """There and back. PyTorch wraps where tapegrad saturates, and rounds i64 to bf16 twice."""
    to = d.pick(list(DTYPES))
    s = d.shape()
    x = d.ints(s, 200) if d.flag(0.3) else d.uniform(s, 0, 200) if to == "u8" else d.normal(s, 100)
    return Call([x], {"to": to}, lambda x: x.to(DTYPES[to]).to(torch.float64))
