"""Losses."""
import numpy as np
import torch
import torch.nn.functional as F

from draw import MEANT, Call, case

REDUCTIONS = {"mean": "mean", "sum": "sum", "each": "none"}


@case("mse", "bce_logits", "smooth_l1")
def pointwise(d, name):
    s, r, beta = d.shape(1, empty=0.0), d.pick(list(REDUCTIONS)), d.real(0.1, 2)
    f = {"mse": F.mse_loss, "bce_logits": F.binary_cross_entropy_with_logits,
         "smooth_l1": lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=beta)}[name]
    options = {"reduction": r, "beta": beta} if name == "smooth_l1" else {"reduction": r}
    return Call([d.normal(s), d.uniform(s, 0, 1)], options,
                lambda x, t: f(x, t.detach(), reduction=REDUCTIONS[r]))


@case("cross_entropy")
def cross_entropy(d):
    rows, v = d.shape(0, 2, empty=0.0), d.int(1, 30)
    e, r = d.pick([0.0, 0.1]), d.pick(list(REDUCTIONS))
    target = d.ints(rows, v)
    if target.size > 1 and d.flag(0.3):
        target.flat[0] = -100

    def f(x, t):
        y = F.cross_entropy(x.reshape(-1, v), t.long().reshape(-1), reduction=REDUCTIONS[r], label_smoothing=e)
        return y.reshape(rows) if r == "each" else y
    return Call([d.normal([*rows, v], 2), target], {"smoothing": e, "reduction": r}, f)


def reduced(y, r):
    """Without elements the mean is 0 here and NaN in PyTorch: the sum stands in for it."""
    return y if r == "each" else y.mean() if r == "mean" and y.numel() else y.sum()


def signs(d, s):
    return np.where(d.rng.random(s) < 0.5, 1.0, -1.0)


MEANT["losses"] = "the mean of no elements is 0, not NaN"


@case("bce", "kl_div", "poisson_nll", "hinge", "hinge_embedding", "soft_margin")
def divergence(d, name):
    s, r, flag, full = d.shape(0), d.pick(list(REDUCTIONS)), d.flag(), d.flag()
    margin, eps = d.real(-0.5, 1.5), d.pick([1e-8, 0.1])
    x, t, options = d.normal(s), signs(d, s), {"reduction": r}
    if name == "bce":
        x, t, f = d.uniform(s, 0.001, 0.999), d.uniform(s, 0, 1), F.binary_cross_entropy
        f = lambda x, t: F.binary_cross_entropy(x, t, reduction="none")
    elif name == "kl_div":
        t, options["log_target"] = (d.normal(s) if flag else d.uniform(s, 0, 1) * d.mask(s)), flag
        f = lambda x, t: F.kl_div(x, t, reduction="none", log_target=flag)
    elif name == "poisson_nll":
        x, t = (d.uniform(s, 0.1, 4) if flag else x), d.ints(s, 6).astype(np.float64)
        options.update(rate=flag, full=full, eps=eps)
        f = lambda x, t: F.poisson_nll_loss(x, t, log_input=not flag, full=full, eps=eps, reduction="none")
    elif name == "hinge":
        options["margin"], f = margin, lambda x, t: (margin - t * x).clamp_min(0)
    elif name == "hinge_embedding":
        t, options["margin"] = (t * d.pick([1, 1, 0.5])), margin
        f = lambda x, t: F.hinge_embedding_loss(x, t, margin, reduction="none")
    else:
        f = lambda x, t: F.soft_margin_loss(x, t, reduction="none")
    return Call([x, t], options, lambda x, t: reduced(f(x, t.detach()), r))


@case("nll")
def nll(d):
    rows, v, r = d.shape(0, 2, empty=0.0), d.int(1, 30), d.pick(list(REDUCTIONS))
    target = d.ints(rows, v)
    if target.size > 1 and d.flag(0.3):
        target.flat[0] = -100

    def f(x, t):
        y = F.nll_loss(x.reshape(-1, v), t.long().reshape(-1), reduction=REDUCTIONS[r])
        return y.reshape(rows) if r == "each" else y
    return Call([d.normal([*rows, v], 2), target], {"reduction": r}, f)


@case("focal_class")
def focal_class(d):
    """torchvision's sigmoid_focal_loss of one-hot rows; K is the background, below 0 is not counted."""
    rows, v, r = d.shape(0, 2), d.int(1, 20), d.pick(["sum", "each"])
    alpha, gamma, target = d.pick([-1.0, 0.25]), d.pick([0.0, 2.0, 1.5]), d.ints(rows, v + 2) - 1

    def f(x, t):
        t = t.long()
        hot = F.one_hot(t.clamp(min=0), v + 1)[..., :v].to(x.dtype)
        p = x.sigmoid() * hot + (1 - x.sigmoid()) * (1 - hot)
        y = F.binary_cross_entropy_with_logits(x, hot, reduction="none") * (1 - p) ** gamma
        if alpha >= 0:
            y = y * (alpha * hot + (1 - alpha) * (1 - hot))
        return reduced(y.sum(-1) * (t >= 0), r)
    return Call([d.normal([*rows, v], 2), target], {"alpha": alpha, "gamma": gamma, "reduction": r}, f)


@case("giou")
def giou(d):
    s, r, eps = d.shape(0, 2), d.pick(list(REDUCTIONS)), d.pick([1e-7, 0.1])

    def boxes():
        low = d.uniform([*s, 2], 0, 2)
        return np.concatenate([low, low + d.uniform([*s, 2], 0.1, 2)], -1)

    def f(x, t):
        t = t.detach()
        area = lambda a, b: (b - a).prod(-1)
        inner = (torch.minimum(x[..., 2:], t[..., 2:]) - torch.maximum(x[..., :2], t[..., :2])).clamp(min=0).prod(-1)
        outer = area(torch.minimum(x[..., :2], t[..., :2]), torch.maximum(x[..., 2:], t[..., 2:]))
        union = area(x[..., :2], x[..., 2:]) + area(t[..., :2], t[..., 2:]) - inner
        return reduced(1 - inner / (union + eps) + (outer - union) / (outer + eps), r)
    return Call([boxes(), boxes()], {"eps": eps, "reduction": r}, f)


@case("margin_ranking")
def margin_ranking(d):
    s, r, margin = d.shape(0), d.pick(list(REDUCTIONS)), d.real(-0.5, 1.5)
    return Call([d.normal(s), d.normal(s), signs(d, s)], {"reduction": r, "margin": margin},
                lambda a, b, t: reduced(F.margin_ranking_loss(a, b, t.detach(), margin, reduction="none"), r))


@case("cosine_similarity")
def cosine_similarity(d):
    s = d.shape(1)
    return Call([d.normal(s), d.normal(s)], {"eps": 1e-8}, lambda a, b: F.cosine_similarity(a, b, -1, 1e-8))


MEANT["cosine_similarity"] = ("vectors shorter than eps: the gradient is that of the formula; PyTorch's is that of "
                              "the norm before it was raised to eps")
MEANT["cosine_embedding"] = "norms are at least 1e-6; PyTorch adds 1e-12 to their squares"


@case("cosine_embedding")
def cosine_embedding(d):
    rows, n, r, margin = d.int(0, 9), d.int(1, 9), d.pick(list(REDUCTIONS)), d.real(-0.9, 0.9)
    s = [rows, n]
    a, b = (signs(d, s) * d.uniform(s, 0.5, 2) for _ in range(2))
    return Call([a, b, signs(d, [rows])], {"reduction": r, "margin": margin},
                lambda a, b, t: reduced(F.cosine_embedding_loss(a, b, t.detach(), margin, reduction="none"), r),
                tolerance=1e-8)


@case("triplet_margin")
def triplet_margin(d):
    s, r, margin = [*d.shape(0, 2), d.int(1, 9)], d.pick(list(REDUCTIONS)), d.real(0, 2)
    p, swap = d.pick([1.0, 2.0, 2.0, 3.5]), d.flag()
    return Call([d.normal(s), d.normal(s), d.normal(s)], {"reduction": r, "margin": margin, "p": p, "swap": swap},
                lambda a, b, c: reduced(F.triplet_margin_loss(a, b, c, margin, p, swap=swap, reduction="none"), r))


@case("dice")
def dice(d):
    """PyTorch has no Dice loss: the formula of Milletari et al."""
    s, r, smooth = d.shape(0), d.pick(list(REDUCTIONS)), d.real(0.1, 1)
    axes = d.int(0, len(s))
    over = list(range(len(s) - axes, len(s)))

    def f(x, t):
        total = (lambda v: v.sum(over)) if over else (lambda v: v)
        t = t.detach()
        return reduced(1 - (2 * total(x * t) + smooth) / (total(x * x) + total(t * t) + smooth), r)
    return Call([d.uniform(s, 0, 1), d.uniform(s, 0, 1).round()], {"reduction": r, "axes": axes, "smooth": smooth}, f)


@case("ctc")
def ctc(d):
    """Logits: PyTorch's gradient of log-probabilities is already that of logits."""
    b, n, s, v = d.int(1, 5), d.int(1, 14), d.int(0, 6), d.int(2, 7)
    blank, r, zero = d.int(0, v - 1), d.pick(list(REDUCTIONS)), d.flag()
    target = d.ints([b, s], v - 1)
    target = (target + (target >= blank)).astype(target.dtype)
    labels = d.ints([b], s + 1)
    rows = d.ints([b], n + 1) if d.flag() else None
    if not zero:  # every target fits: PyTorch's gradient of an infinite loss is NaN
        for i in range(b):
            have = n if rows is None else int(rows[i])
            while (k := int(labels[i])) + int((target[i, 1:k] == target[i, :max(k - 1, 0)]).sum()) > have:
                labels[i] -= 1

    def f(x, t, *lengths):
        q = torch.tensor([n] * b) if rows is None else lengths[0]
        y = F.ctc_loss(x.log_softmax(-1).transpose(0, 1), t.long(), q.long(), lengths[-1].long(), blank,
                       reduction=REDUCTIONS[r], zero_infinity=zero)
        return y
    return Call([3 * d.normal([b, n, v]), target, rows, labels],
                {"reduction": r, "blank": blank, "zero_infinity": zero}, f)


MEANT["ctc"] = "the gradient of an infinite loss without zero_infinity is 0, not NaN"
