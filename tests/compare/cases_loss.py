"""Losses."""
import torch.nn.functional as F

from draw import Call, case

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
