"""Elementwise ops of one and of two operands."""
import numpy as np
import torch
import torch.nn.functional as F

from draw import Call, case

# name: (function, inputs from, to)
ONE = {
    "neg": (torch.neg, -3, 3), "exp": (torch.exp, -4, 4), "log": (torch.log, 0.01, 9),
    "sqrt": (torch.sqrt, 0.01, 9), "square": (torch.square, -3, 3), "abs": (torch.abs, -3, 3),
    "relu": (torch.relu, -3, 3), "gelu": (F.gelu, -6, 6),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), -6, 6),
    "quick_gelu": (lambda x: x * torch.sigmoid(1.702 * x), -6, 6), "hardswish": (F.hardswish, -6, 6),
    "silu": (F.silu, -9, 9), "sigmoid": (torch.sigmoid, -40, 40), "tanh": (torch.tanh, -20, 20),
    "mish": (F.mish, -9, 9), "softplus": (lambda x: F.softplus(x, threshold=1e9), -30, 30),
    "expm1": (torch.expm1, -2, 2), "log1p": (torch.log1p, -0.9, 9), "reciprocal": (torch.reciprocal, 0.1, 9),
    "rsqrt": (torch.rsqrt, 0.01, 9), "floor": (torch.floor, -9, 9), "round": (torch.round, -9, 9),
    "sign": (torch.sign, -3, 3), "sin": (torch.sin, -20, 20), "cos": (torch.cos, -20, 20),
}
TWO = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
       "maximum": torch.maximum, "minimum": torch.minimum}
MASK = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
        "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_xor": torch.logical_xor}
ASK = {"logical_not": torch.logical_not, "isnan": torch.isnan, "isfinite": torch.isfinite, "isinf": torch.isinf}


@case(*ONE)
def one(d, name):
    f, low, high = ONE[name]
    return Call([d.uniform(d.shape(), low, high)], {}, f)


def either(f, k):
    """f of two operands, of which one may be None: the number k."""
    def apply(a, b):
        number = torch.tensor(k, dtype=torch.float64)
        return f(number if a is None else a, number if b is None else b)
    return apply


def shapes(d, n):
    """n shapes that broadcast into a common one: one has all its sizes, or all are repeated somewhere."""
    s = d.shape(0, 5)
    drawn = [d.broadcast(s) for _ in range(n)]
    if d.flag(0.7):
        drawn[d.int(0, n - 1)] = s
    return drawn


def drop_one(d, inputs, first=0):
    """Leaves out one of two operands with a probability of 0.3: a number stands in its place."""
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
    return Call(inputs, {"k": k}, either(TWO[name], k))


@case(*MASK)
def mask(d, name):
    sa, sb = shapes(d, 2)
    kind = d.pick(["float", "i32", "i64", "u8"])
    def values(s):
        if kind == "float":
            x = np.rint(d.normal(s, 1.5))
            return np.where(d.uniform(s, 0, 1) < 0.05, d.pick([np.nan, np.inf]), x)
        return d.mask(s) if kind == "u8" else d.ints(s, 4, {"i32": np.int32, "i64": np.int64}[kind]) - 1
    k = d.pick([-1.0, 0.0, 0.5, 1.0, 2.0, 300.0])
    return Call(drop_one(d, [values(sa), values(sb)]), {"k": k}, either(MASK[name], k))


@case(*ASK)
def ask(d, name):
    s = d.shape()
    x = np.rint(d.normal(s))
    for special in (np.nan, np.inf, -np.inf):
        x = np.where(d.uniform(s, 0, 1) < 0.1, special, x)
    return Call([d.ints(s, 3) if d.flag(0.2) else x], {}, ASK[name])


@case("where")
def where(d):
    sm, sa, sb = shapes(d, 3)
    whole = d.flag(0.2)
    a, b = (d.ints(sa, 9, np.int64), d.ints(sb, 9, np.int64)) if whole else (d.normal(sa), d.normal(sb))
    k = float(d.int(-3, 3)) if whole else d.real(-3, 3)
    def choose(m, a, b):
        number = int(k) if whole else k
        return torch.where(m != 0, number if a is None else a, number if b is None else b)
    return Call(drop_one(d, [d.mask(sm), a, b], 1), {"k": k}, choose)


@case("masked_fill")
def masked_fill(d):
    s = d.shape(0, 5)
    k = d.pick([d.real(-3, 3), -1e300])
    return Call([d.normal(s), d.mask(d.broadcast(s))], {"k": k}, lambda x, m: x.masked_fill(m != 0, k))


@case("scale", "leaky_relu", "elu")
def number(d, name):
    k = d.real(0.01, 2)
    f = {"scale": lambda x: k * x, "leaky_relu": lambda x: F.leaky_relu(x, k), "elu": lambda x: F.elu(x, k)}[name]
    return Call([d.normal(d.shape())], {"k": k}, f)


@case("clamp")
def clamp(d):
    lo = d.real(-2, 1)
    hi = lo + d.real(0, 2)
    return Call([d.normal(d.shape())], {"lo": lo, "hi": hi}, lambda x: x.clamp(lo, hi))


@case("cast")
def cast(d):
    """There and back. PyTorch wraps around where tapegrad saturates, and rounds i64 to bf16 twice."""
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64, "i32": torch.int32,
             "i64": torch.int64, "u8": torch.uint8}
    to = d.pick(list(types))
    s = d.shape()
    x = d.ints(s, 200) if d.flag(0.3) else d.uniform(s, 0, 200) if to == "u8" else d.normal(s, 100)
    return Call([x], {"to": to}, lambda x: x.to(types[to]).to(torch.float64))
