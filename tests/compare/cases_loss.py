"""Losses."""
import numpy as np

from draw import MEANT, Call, case
from torch_ops import OPS

REDUCTIONS = ["mean", "sum", "each"]


@case("mse", "bce_logits", "smooth_l1")
def pointwise(d, name):
    s, r, beta = d.shape(1, empty=0.0), d.pick(REDUCTIONS), d.real(0.1, 2)
    options = {"reduction": r, "beta": beta} if name == "smooth_l1" else {"reduction": r}
    return Call([d.normal(s), d.uniform(s, 0, 1)], options)


@case("cross_entropy")
def cross_entropy(d):
    rows, v = d.shape(0, 2, empty=0.0), d.int(1, 30)
    e, r = d.pick([0.0, 0.1]), d.pick(REDUCTIONS)
    target = d.ints(rows, v)
    if target.size > 1 and d.flag(0.3):
        target.flat[0] = -100
    return Call([d.normal([*rows, v], 2), target], {"smoothing": e, "reduction": r})


def signs(d, s):
    return np.where(d.rng.random(s) < 0.5, 1.0, -1.0)


MEANT["losses"] = "the mean of no elements is 0, not NaN"


@case("bce", "kl_div", "poisson_nll", "hinge", "hinge_embedding", "soft_margin")
def divergence(d, name):
    s, r, flag, full = d.shape(0), d.pick(REDUCTIONS), d.flag(), d.flag()
    margin, eps = d.real(-0.5, 1.5), d.pick([1e-8, 0.1])
    x, t, options = d.normal(s), signs(d, s), {"reduction": r}
    if name == "bce":
        x, t = d.uniform(s, 0.001, 0.999), d.uniform(s, 0, 1)
    elif name == "kl_div":
        t, options["log_target"] = (d.normal(s) if flag else d.uniform(s, 0, 1) * d.mask(s)), flag
    elif name == "poisson_nll":
        x, t = (d.uniform(s, 0.1, 4) if flag else x), d.ints(s, 6).astype(np.float64)
        options.update(rate=flag, full=full, eps=eps)
    elif name == "hinge":
        options["margin"] = margin
    elif name == "hinge_embedding":
        t, options["margin"] = (t * d.pick([1, 1, 0.5])), margin
    return Call([x, t], options)


@case("nll")
def nll(d):
    rows, v, r = d.shape(0, 2, empty=0.0), d.int(1, 30), d.pick(REDUCTIONS)
    target = d.ints(rows, v)
    if target.size > 1 and d.flag(0.3):
        target.flat[0] = -100
    return Call([d.normal([*rows, v], 2), target], {"reduction": r})


@case("focal_class")
def focal_class(d):
    rows, v, r = d.shape(0, 2), d.int(1, 20), d.pick(["sum", "each"])
    alpha, gamma, target = d.pick([-1.0, 0.25]), d.pick([0.0, 2.0, 1.5]), d.ints(rows, v + 2) - 1
    return Call([d.normal([*rows, v], 2), target], {"alpha": alpha, "gamma": gamma, "reduction": r})


@case("giou")
def giou(d):
    s, r, eps = d.shape(0, 2), d.pick(REDUCTIONS), d.pick([1e-7, 0.1])

    def boxes():
        low = d.uniform([*s, 2], 0, 2)
        return np.concatenate([low, low + d.uniform([*s, 2], 0.1, 2)], -1)

    return Call([boxes(), boxes()], {"eps": eps, "reduction": r})


@case("margin_ranking")
def margin_ranking(d):
    s, r, margin = d.shape(0), d.pick(REDUCTIONS), d.real(-0.5, 1.5)
    return Call([d.normal(s), d.normal(s), signs(d, s)], {"reduction": r, "margin": margin})


@case("cosine_similarity")
def cosine_similarity(d):
    s = d.shape(1)
    return Call([d.normal(s), d.normal(s)], {"eps": 1e-8})


MEANT["cosine_similarity"] = ("vectors shorter than eps: the gradient is that of the formula; "
                              "PyTorch's is that of the norm before it was raised to eps")
MEANT["cosine_embedding"] = "norms are at least 1e-6; PyTorch adds 1e-12 to their squares"


@case("cosine_embedding")
def cosine_embedding(d):
    rows, n, r, margin = d.int(0, 9), d.int(1, 9), d.pick(REDUCTIONS), d.real(-0.9, 0.9)
    s = [rows, n]
    a, b = (signs(d, s) * d.uniform(s, 0.5, 2) for _ in range(2))
    return Call([a, b, signs(d, [rows])], {"reduction": r, "margin": margin},
                tolerance=1e-8)


@case("triplet_margin")
def triplet_margin(d):
    s, r, margin = [*d.shape(0, 2), d.int(1, 9)], d.pick(REDUCTIONS), d.real(0, 2)
    p, swap = d.pick([1.0, 2.0, 2.0, 3.5]), d.flag()
    return Call([d.normal(s), d.normal(s), d.normal(s)],
                {"reduction": r, "margin": margin, "p": p, "swap": swap})


@case("dice")
def dice(d):
    s, r, smooth = d.shape(0), d.pick(REDUCTIONS), d.real(0.1, 1)
    axes = d.int(0, len(s))
    return Call([d.uniform(s, 0, 1), d.uniform(s, 0, 1).round()],
                {"reduction": r, "axes": axes, "smooth": smooth})


@case("ctc")
def ctc(d):
    """Logits: PyTorch's gradient of log-probabilities is already that of logits."""
    b, n, s, v = d.int(1, 5), d.int(1, 14), d.int(0, 6), d.int(2, 7)
    blank, r, zero = d.int(0, v - 1), d.pick(REDUCTIONS), d.flag()
    target = d.ints([b, s], v - 1)
    target = (target + (target >= blank)).astype(target.dtype)
    labels = d.ints([b], s + 1)
    rows = d.ints([b], n + 1) if d.flag() else None
    if not zero:  # every target fits: PyTorch's gradient of an infinite loss is NaN
        for i in range(b):
            have = n if rows is None else int(rows[i])
            while ((k := int(labels[i]))
                   + int((target[i, 1:k] == target[i, :max(k - 1, 0)]).sum()) > have):
                labels[i] -= 1
    options = {"reduction": r, "blank": blank, "zero_infinity": zero}
    return Call([3 * d.normal([b, n, v]), target, rows, labels],
                options,
                lambda x, *rest: OPS["ctc"](x.log_softmax(-1), *rest, **options))


MEANT["ctc"] = "the gradient of an infinite loss without zero_infinity is 0, not NaN"
