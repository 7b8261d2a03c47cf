"""Optimisers: a few steps with random gradients."""
import torch

from draw import Call, case


def steps(d, kind, options, make):
    """make(parameters) returns PyTorch's optimiser."""
    n, lr = d.int(1, 8), d.real(0.001, 0.1)
    shapes = [d.shape(0, 3) for _ in range(d.int(1, 3))]
    params = {str(i): d.normal(s) for i, s in enumerate(shapes)}

    def f(*gradients, params):
        p = [torch.nn.Parameter(v.detach().clone()) for v in params.values()]
        o = make(p, lr)
        for s in range(n):
            for q, g in zip(p, gradients):
                q.grad = g[s].clone()
            o.step()
        return [q.detach() for q in p]
    return Call([d.normal([n, *s]) for s in shapes], {"kind": kind, "lr": lr, **options}, f, params=params,
                gradients=False, op="optim")


@case("sgd")
def sgd(d):
    momentum, decay = d.pick([0.0, 0.9]), d.pick([0.0, 0.1])
    nesterov = momentum > 0 and d.flag()
    return steps(d, "sgd", {"momentum": momentum, "weight_decay": decay, "nesterov": nesterov},
                 lambda p, lr: torch.optim.SGD(p, lr, momentum, weight_decay=decay, nesterov=nesterov))


@case("adam", "adamw")
def adam(d, name):
    b1, b2, eps, decay = d.real(0.5, 0.95), d.real(0.9, 0.999), d.pick([1e-8, 1e-4]), d.pick([0.0, 0.1])
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return steps(d, name, {"beta1": b1, "beta2": b2, "eps": eps, "weight_decay": decay},
                 lambda p, lr: make(p, lr, (b1, b2), eps, weight_decay=decay))
