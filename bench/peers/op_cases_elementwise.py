"""Elementwise ops."""
import operator

import torch
import torch.nn.functional as F

from op_cases_kit import Numbers

ROWS = (4096, 512)

TABLES = {}


def rotary(x):
    """As models write it: cosines and sines of all positions are computed once."""
    q = x.view(x.shape[0], x.shape[1], 8, -1).transpose(1, 2)
    if x.shape not in TABLES:
        rates = 10000 ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        angles = (torch.arange(x.shape[1])[:, None] * rates).repeat(1, 2)
        TABLES[x.shape] = angles.cos(), angles.sin()
    cos, sin = TABLES[x.shape]
    a, b = q.chunk(2, -1)
    return (q * cos + torch.cat((-b, a), -1) * sin).transpose(1, 2)


def two(op, f):
    """Of one shape, with a row, and with a number."""
    return [(op, "4096x512", f, [ROWS] * 2), (op, "4096x512 row", f, [ROWS, (512,)]),
            (op, "4096x512 number", lambda x: f(x, 1.5), [ROWS])]


CASES = two("mul", operator.mul) + two("add", operator.add) + two("div", operator.truediv) + [
    ("maximum", "4096x512", torch.maximum, [ROWS] * 2),
    ("pow", "4096x512", torch.pow, [Numbers(ROWS, unit=True), ROWS]),
    ("gt", "4096x512", torch.gt, [ROWS] * 2),
    ("where", "4096x512, x > 0", lambda x, y: torch.where(x > 0, x, y), [ROWS] * 2),
    ("sin", "4096x512", torch.sin, [ROWS]),
    ("cast", "4096x512 to i64", lambda x: x.long(), [ROWS]),
    ("gelu", "4096x512", F.gelu, [ROWS]),
    ("dropout_add", "4096x512", lambda x, r: r + F.dropout(x, 0.2), [ROWS] * 2),
    ("glu", "4096x1024", F.glu, [(4096, 1024)]),
    ("rotary", "8x512x512 h8", rotary, [(8, 512, 512)]),
]
