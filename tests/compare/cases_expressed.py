"""Functions that the library expresses by its ops (expressed.h)."""
import torch
import torch.nn.functional as F

from draw import MEANT, Call, case

MEANT["hardsigmoid"] = "PyTorch's gradient in f64 is 1/6 rounded to f32"

# name: (function, range of the inputs)
ONE = {
    "ceil": (torch.ceil, -9, 9), "trunc": (torch.trunc, -9, 9), "log2": (torch.log2, 0.01, 9),
    "log10": (torch.log10, 0.01, 9), "exp2": (torch.exp2, -9, 9), "sinh": (torch.sinh, -4, 4),
    "cosh": (torch.cosh, -4, 4), "tan": (torch.tan, -1.4, 1.4), "relu6": (F.relu6, -9, 9),
    "hardtanh": (F.hardtanh, -3, 3),
    "hardsigmoid": (F.hardsigmoid, -5, 5), "logsigmoid": (F.logsigmoid, -30, 30),
    "selu": (F.selu, -5, 5),
    "celu": (lambda x: F.celu(x, 2), -5, 5), "softsign": (F.softsign, -9, 9),
    "tanhshrink": (F.tanhshrink, -9, 9),
    "softshrink": (F.softshrink, -3, 3), "hardshrink": (F.hardshrink, -3, 3),
    "threshold": (lambda x: F.threshold(x, 0.1, 20), -3, 3),
    "count_nonzero": (lambda x: torch.count_nonzero(x).double(), -3, 3),
}
# Along the last axis.
ROWS = {"softmin": lambda x: F.softmin(x, -1), "normalize": lambda x: F.normalize(x, dim=-1)}
# Two operands of the same shape.
TWO = {
    "hypot": torch.hypot, "logaddexp": torch.logaddexp, "remainder": torch.remainder,
    "dot": lambda x, y: (x * y).sum(),
    "huber": lambda x, y: F.huber_loss(x, y.detach(), delta=0.5),
    "l1": lambda x, y: F.l1_loss(x, y.detach()),
    "pairwise": F.pairwise_distance,
}
THREE = {"lerp": torch.lerp, "addcmul": torch.addcmul, "addcdiv": torch.addcdiv}


@case(*ONE)
def one(d, name):
    f, low, high = ONE[name]
    return Call([d.uniform(d.shape(), low, high)], {}, f,
                tolerance=1e-8 if name == "hardsigmoid" else 1e-9)


@case(*ROWS)
def rows(d, name):
    return Call([d.normal(d.shape(1, 4))], {}, ROWS[name])


@case(*TWO)
def two(d, name):
    s = d.shape(1, 4, empty=0 if name in ("huber", "l1") else 0.04)
    y = d.normal(s)
    return Call([d.normal(s), y + 2 * (y > 0) - 1 if name == "remainder" else y], {}, TWO[name])


@case(*THREE)
def three(d, name):
    s = d.shape()
    z = d.normal(s)
    return Call([d.normal(s), d.normal(s), z + 2 * (z > 0) - 1 if name == "addcdiv" else z], {},
                THREE[name])


@case("prelu")
def prelu(d):
    s = d.shape(1, 4)
    return Call([d.normal(s), d.normal([s[-1]])], {},
                lambda x, y: torch.where(x > 0, x, y * x))  # F.prelu has channels first


@case("addmm")
def addmm(d):
    m, k, n = d.int(1, 6), d.int(1, 6), d.int(1, 6)
    return Call([d.normal([m, k]), d.normal([k, n]), d.normal([n])], {},
                lambda x, y, z: torch.addmm(z, x, y))


@case("gaussian_nll")
def gaussian_nll(d):
    s = d.shape(1, 4, empty=0)
    return Call([d.normal(s), d.normal(s), d.uniform(s, 0.1, 3)], {}, F.gaussian_nll_loss)


@case("bilinear")
def bilinear(d):
    b, i, j, o = (d.int(1, 5) for _ in range(4))
    return Call([d.normal([b, i]), d.normal([b, j]), d.normal([o, i, j])], {}, F.bilinear)


@case("median")
def median(d):
    return Call([d.normal(d.shape(1, 4, empty=0))], {}, lambda x: x.median(-1, keepdim=True).values)


@case("cdist")
def cdist(d):
    m, n, c = d.int(1, 6), d.int(1, 6), d.int(1, 6)
    return Call([d.normal([m, c]), d.normal([n, c])], {},
                lambda x, y: (x[:, None] - y).norm(dim=-1))


@case("bincount")
def bincount(d):
    return Call([d.rng.integers(0, 9, d.int(1, 20))], {},
                lambda x: torch.bincount(x, minlength=9).float())


@case("embeddingbag")
def embeddingbag(d):
    v, c = d.int(1, 9), d.int(1, 5)
    ids = d.rng.integers(0, v, [d.int(1, 4), d.int(1, 4)])
    return Call([d.normal([v, c]), ids], {}, lambda x, y: F.embedding(y, x).sum(-2))


@case("pixel_shuffle")
def pixel_shuffle(d):
    x = d.normal([d.int(1, 3), d.int(1, 5), d.int(1, 5), 4 * d.int(1, 3)])
    return Call([x], {}, lambda x: F.pixel_shuffle(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1))


@case("unfold_axis")
def tensor_unfold(d):
    return Call([d.normal([d.int(1, 4), d.int(1, 5), d.int(3, 20)])], {},
                lambda x: x.unfold(-1, 3, 2))


@case("eye", stored=1)
def eye(d):
    return Call([], {}, lambda: torch.eye(5))
