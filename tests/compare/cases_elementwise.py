"""Elementwise ops of one and of two operands."""
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
    "sign": (torch.sign, -3, 3),
}
TWO = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}


@case(*ONE)
def one(d, name):
    f, low, high = ONE[name]
    return Call([d.uniform(d.shape(), low, high)], {}, f)


@case(*TWO)
def two(d, name):
    s = d.shape(0, 5)
    b = d.normal(d.broadcast(s))
    return Call([d.normal(s), b + (b > 0) - 0.5 if name == "div" else b], {}, TWO[name])


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
