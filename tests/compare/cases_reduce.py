"""Reductions, and functions along one axis."""
import math

from draw import MEANT, Call, case


def axes(d, s):
    """Options for the axes of a reduction of shape s, and the axes counted from the front."""
    over = [int(i) for i in d.rng.permutation(len(s))[:d.int(1, len(s))]]
    given = [i - len(s) if d.flag() else i for i in over]
    options = {"keep": True} if d.flag() else {}
    if d.flag(0.2):
        return options, list(range(len(s)))
    return {"axes": given, **options}, over


@case("prod", "max", "min", "argmax", "argmin")
def one_axis(d, name):
    s = d.shape(1, 4, empty=0.0)
    options, _ = axes(d, s)
    x = d.normal(s)
    if name == "prod":
        x[d.rng.random(x.shape) < 0.1] = 0.0
    return Call([x], options)


@case("sum", "mean", "logsumexp", "any", "all")
def reduce(d, name):
    s = d.shape(1, 4, empty=0.0)
    options, _ = axes(d, s)
    if name in ("any", "all"):
        return Call([d.mask(s, 0.2 if name == "any" else 0.8)], options)
    return Call([d.normal(s)], options)


MEANT["var"] = ("of fewer elements than the correction: the gradient is NaN, as the result is; "
                "along axes PyTorch's is 0")


@case("var", "std")
def spread(d, name):
    s = d.shape(1, 4, empty=0.0)
    options, over = axes(d, s)
    correction = d.int(0, min(2, math.prod(s[i] for i in over)))
    return Call([d.normal(s)], {**options, "correction": correction})


@case("norm")
def norm(d):
    s = d.shape(1, 4, empty=0.0)
    options, _ = axes(d, s)
    p = d.pick([0.0, 1.0, 2.0, 3.0, math.inf, d.real(0.5, 4.0)])
    x = d.ints(s, 5).astype(float) - 2.0 if math.isinf(p) else d.normal(s)
    return Call([x], {**options, "p": -1.0 if math.isinf(p) else p})


@case("cumsum", "cumprod")
def cumulative(d, name):
    s = d.shape(1)
    axis = d.axis(s)
    x = d.normal(s)
    if name == "cumprod" and d.flag():
        x[d.rng.random(x.shape) < 0.2] = 0.0
    return Call([x], {"axis": axis})


@case("sort")
def sort(d):
    s = d.shape(1)
    axis, descending = d.axis(s), d.flag()
    x = d.normal(s) if d.flag() else d.ints(s, 3).astype(float) - 1.0  # equal elements
    return Call([x], {"axis": axis, "descending": descending})


@case("topk")
def topk(d):
    s = d.shape(1)
    axis, largest = d.axis(s), d.flag()
    k = d.int(0, s[axis])
    return Call([d.normal(s)], {"axis": axis, "k": k, "largest": largest})
