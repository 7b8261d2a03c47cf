"""Reductions."""
from draw import Call, case


@case("sum", "mean", "max", "argmax", "logsumexp")
def reduce(d, name):
    s = d.shape(1, 4, empty=0.0)
    x = d.normal(s)
    if d.flag(0.2):
        every = {"sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "max": lambda x: x.max(),
                 "argmax": lambda x: x.argmax(), "logsumexp": lambda x: x.flatten().logsumexp(0)}
        return Call([x], {}, every[name])
    axis = d.axis(s)
    one = {"sum": lambda x: x.sum(axis), "mean": lambda x: x.mean(axis), "max": lambda x: x.max(axis).values,
           "argmax": lambda x: x.argmax(axis), "logsumexp": lambda x: x.logsumexp(axis)}
    return Call([x], {"axis": axis}, one[name])
