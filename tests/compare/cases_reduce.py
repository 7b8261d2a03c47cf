"""Reductions, and functions along one axis."""
import math

import torch

from draw import MEANT, Call, case


def axes(d, s):
    """The options of the axes of a reduction of the shape s, and the axes from the front."""
    over = [int(i) for i in d.rng.permutation(len(s))[:d.int(1, len(s))]]
    given = [i - len(s) if d.flag() else i for i in over]
    options = {"keep": True} if d.flag() else {}
    if d.flag(0.2):
        return options, list(range(len(s)))
    return {"axes": given, **options}, over


def flat(x, over, keep):
    """The axes `over` of x as its last one, and a function that gives a result its shape."""
    over = sorted(over)
    kept = [i for i in range(x.ndim) if i not in over]
    shape = [1 if i in over else n for i, n in enumerate(x.shape)] if keep else [x.shape[i] for i in kept]
    return x.permute(kept + over).flatten(len(kept)), lambda y: y.reshape(shape)


ONE_AXIS = {  # PyTorch reduces a single axis by these
    "prod": lambda x: x.prod(-1), "max": lambda x: x.max(-1).values, "min": lambda x: x.min(-1).values,
    "argmax": lambda x: x.argmax(-1), "argmin": lambda x: x.argmin(-1),
}


@case("prod", "max", "min", "argmax", "argmin")
def one_axis(d, name):
    s = d.shape(1, 4, empty=0.0)
    options, over = axes(d, s)
    x = d.normal(s)
    if name == "prod":
        x[d.rng.random(x.shape) < 0.1] = 0.0

    def function(x):
        rows, shaped = flat(x, over, "keep" in options)
        return shaped(ONE_AXIS[name](rows))
    return Call([x], options, function)


@case("sum", "mean", "logsumexp", "any", "all")
def reduce(d, name):
    s = d.shape(1, 4, empty=0.0)
    options, over = axes(d, s)
    keep = "keep" in options
    if name in ("any", "all"):
        test = {"any": torch.any, "all": torch.all}[name]
        return Call([d.mask(s, 0.2 if name == "any" else 0.8)], options,
                    lambda x: test(x, over, keep).to(torch.uint8))
    return Call([d.normal(s)], options, lambda x: getattr(x, name)(over, keep))


MEANT["var"] = "of fewer elements than the correction: the gradient is NaN, as the result is; along axes PyTorch's is 0"


@case("var", "std")
def spread(d, name):
    s = d.shape(1, 4, empty=0.0)
    options, over = axes(d, s)
    correction = d.int(0, min(2, math.prod(s[i] for i in over)))
    return Call([d.normal(s)], {**options, "correction": correction},
                lambda x: getattr(x, name)(over, correction=correction, keepdim="keep" in options))


@case("norm")
def norm(d):
    s = d.shape(1, 4, empty=0.0)
    options, over = axes(d, s)
    p = d.pick([0.0, 1.0, 2.0, 3.0, math.inf, d.real(0.5, 4.0)])
    x = d.ints(s, 5).astype(float) - 2.0 if math.isinf(p) else d.normal(s)
    return Call([x], {**options, "p": -1.0 if math.isinf(p) else p},
                lambda x: torch.linalg.vector_norm(x, p, over, "keep" in options))


@case("cumsum", "cumprod")
def cumulative(d, name):
    s = d.shape(1)
    axis = d.axis(s)
    x = d.normal(s)
    if name == "cumprod" and d.flag():
        x[d.rng.random(x.shape) < 0.2] = 0.0
    return Call([x], {"axis": axis}, lambda x: getattr(x, name)(axis))


@case("sort")
def sort(d):
    s = d.shape(1)
    axis, descending = d.axis(s), d.flag()
    x = d.normal(s) if d.flag() else d.ints(s, 3).astype(float) - 1.0  # equal elements
    return Call([x], {"axis": axis, "descending": descending},
                lambda x: tuple(torch.sort(x, dim=axis, descending=descending, stable=True)))


@case("topk")
def topk(d):
    s = d.shape(1)
    axis, largest = d.axis(s), d.flag()
    k = d.int(0, s[axis])
    return Call([d.normal(s)], {"axis": axis, "k": k, "largest": largest}, lambda x: tuple(x.topk(k, axis, largest)))
