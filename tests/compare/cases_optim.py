"""Optimisers: a few steps with random gradients. Those missing from PyTorch follow their papers."""
from unittest import mock

import torch

try:
    import schedulefree
except ImportError:
    schedulefree = None

from draw import Call, case


def steps(d, kind, options, make, empty=0.04):
    """make(parameters) returns PyTorch's optimiser. empty: how often a size is 0."""
    n, lr = d.int(1, 8), d.real(0.001, 0.1)
    shapes = [d.shape(0, 3, empty=empty) for _ in range(d.int(1, 3))]
    params = {str(i): d.normal(s) for i, s in enumerate(shapes)}

    def f(*gradients, params):
        p = [torch.nn.Parameter(v.detach().clone()) for v in params.values()]
        o = make(p, lr)
        for s in range(n):
            for q, g in zip(p, gradients):
                q.grad = g[s].clone()
            o.step()
        if options.get("average"):
            o.eval()
        return [q.detach() for q in p]
    return Call([d.normal([n, *s]) for s in shapes], {"kind": kind, "lr": lr, **options}, f,
                params=params, gradients=False, op="optim")


@case("sgd")
def sgd(d):
    momentum, decay = d.pick([0.0, 0.9]), d.pick([0.0, 0.1])
    nesterov = momentum > 0 and d.flag()
    return steps(d, "sgd", {"momentum": momentum, "weight_decay": decay, "nesterov": nesterov},
                 lambda p, lr: torch.optim.SGD(p, lr, momentum, weight_decay=decay,
                                               nesterov=nesterov))


@case("adam", "adamw")
def adam(d, name):
    b1, b2 = d.real(0.5, 0.95), d.real(0.9, 0.999)
    eps, decay = d.pick([1e-8, 1e-4]), d.pick([0.0, 0.1])
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return steps(d, name, {"beta1": b1, "beta2": b2, "eps": eps, "weight_decay": decay},
                 lambda p, lr: make(p, lr, (b1, b2), eps, weight_decay=decay))


@case("rmsprop")
def rmsprop(d):
    alpha, eps, momentum = d.real(0.5, 0.999), d.pick([1e-6, 1e-3]), d.pick([0.0, 0.9])
    decay, centered = d.pick([0.0, 0.1]), d.flag()
    options = {"alpha": alpha, "eps": eps, "momentum": momentum, "weight_decay": decay,
               "centered": centered}
    return steps(d, "rmsprop", options,
                 lambda p, lr: torch.optim.RMSprop(p, lr, alpha, eps, decay, momentum, centered))


@case("adagrad")
def adagrad(d):
    lr_decay, decay = d.pick([0.0, 0.2]), d.pick([0.0, 0.1])
    initial, eps = d.pick([0.0, 0.3]), d.pick([1e-10, 1e-3])
    return steps(d, "adagrad", {"lr_decay": lr_decay, "weight_decay": decay, "initial": initial,
                                "eps": eps},
                 lambda p, lr: torch.optim.Adagrad(p, lr, lr_decay, decay, initial, eps))


@case("adafactor")
def adafactor(d):
    decay, eps1, eps2 = d.pick([0.0, 0.1]), d.pick([None, 0.3]), d.pick([1e-3, 1.0])
    beta2_decay, limit = d.pick([-0.8, -0.3]), d.pick([1.0, 1.2])
    options = {"beta2_decay": beta2_decay, "eps1": eps1 or 0.0, "eps2": eps2, "d": limit,
               "weight_decay": decay}
    return steps(d, "adafactor", options,
                 lambda p, lr: torch.optim.Adafactor(p, lr, beta2_decay, (eps1, eps2), limit,
                                                     decay),
                 empty=0)  # PyTorch divides by numel


class Formula:
    """An optimiser of parameters p whose update(p, g, state, lr) changes p and its state."""

    def __init__(self, p, lr, update):
        self.p, self.lr, self.update, self.state = p, lr, update, [{} for _ in p]

    @torch.no_grad()
    def step(self):
        for q, s in zip(self.p, self.state):
            s["n"] = s.get("n", 0) + 1
            self.update(q, q.grad, s, self.lr)


@case("qhm")
def qhm(d):
    momentum, nu, decay = d.pick([0.0, 0.9]), d.real(0, 1), d.pick([0.0, 0.1])

    def update(q, g, s, lr):
        g = g + decay * q
        s["u"] = momentum * s.get("u", 0) + (1 - momentum) * g
        q -= lr * ((1 - nu) * g + nu * s["u"])
    return steps(d, "qhm", {"momentum": momentum, "nu": nu, "weight_decay": decay},
                 lambda p, lr: Formula(p, lr, update))


@case("lion")
def lion(d):
    """Algorithm 2 of Chen et al. 2023."""
    b1, b2, decay = d.real(0.5, 0.95), d.real(0.9, 0.999), d.pick([0.0, 0.1])

    def update(q, g, s, lr):
        m = s.get("m", torch.zeros_like(q))
        q -= lr * ((b1 * m + (1 - b1) * g).sign() + decay * q)
        s["m"] = b2 * m + (1 - b2) * g
    return steps(d, "lion", {"beta1": b1, "beta2": b2, "weight_decay": decay},
                 lambda p, lr: Formula(p, lr, update))


@case("lamb")
def lamb(d):
    """Algorithm 2 of You et al. 2020, phi the identity."""
    b1, b2 = d.real(0.5, 0.95), d.real(0.9, 0.999)
    eps, decay = d.pick([1e-6, 1e-3]), d.pick([0.0, 0.1])

    def update(q, g, s, lr):
        s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
        s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
        r = s["m"] / (1 - b1 ** s["n"]) / ((s["v"] / (1 - b2 ** s["n"])).sqrt() + eps) + decay * q
        norms = q.norm(), r.norm()
        q -= lr * (norms[0] / norms[1] if min(norms) > 0 else 1.0) * r
    return steps(d, "lamb", {"beta1": b1, "beta2": b2, "eps": eps, "weight_decay": decay},
                 lambda p, lr: Formula(p, lr, update))


class Both:
    """Muon for matrices, AdamW for the rest, without PyTorch's rounding to bf16."""

    def __init__(self, p, lr, muon, adamw):
        def taken(q):
            return q.ndim == 2 and min(q.shape) > 1
        groups = [q for q in p if taken(q)], [q for q in p if not taken(q)]
        self.parts = [make(group, lr) for make, group in zip((muon, adamw), groups) if group]

    def step(self):
        with mock.patch.object(torch, "bfloat16", torch.float64):
            for part in self.parts:
                part.step()


@case("muon")
def muon(d):
    momentum, nesterov, match = d.pick([0.0, 0.95]), d.flag(), d.flag()
    b1, b2, decay = d.real(0.5, 0.95), d.real(0.9, 0.999), d.pick([0.0, 0.1])
    iterations, scale = d.int(1, 6), "match_rms_adamw" if match else "original"
    options = {"momentum": momentum, "nesterov": nesterov, "match_rms": match, "beta1": b1,
               "beta2": b2, "weight_decay": decay, "newton_schulz": iterations}

    def make(p, lr):
        return Both(p, lr, lambda q, lr: torch.optim.Muon(
            q, lr, decay, momentum, nesterov, ns_steps=iterations, adjust_lr_fn=scale),
            lambda q, lr: torch.optim.AdamW(q, lr, (b1, b2), weight_decay=decay))
    return steps(d, "muon", options, make)


if schedulefree:
    @case("schedulefree")
    def schedule_free(d):
        b1, b2, decay = d.real(0.5, 0.95), d.real(0.9, 0.999), d.pick([0.0, 0.1])
        r, power, average = d.pick([0.0, 1.0]), d.pick([0.0, 2.0]), d.flag()

        def make(p, lr):
            o = schedulefree.AdamWScheduleFree(p, lr, (b1, b2), 1e-8, decay, 0, r, power)
            o.train()
            return o
        return steps(d, "schedulefree", {"beta1": b1, "beta2": b2, "weight_decay": decay, "r": r,
                                         "lr_power": power, "average": average}, make)
