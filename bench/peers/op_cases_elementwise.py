"""Elementwise ops."""
import operator

import torch
import torch.nn.functional as F

from op_cases_kit import Numbers

ROWS = (4096, 512)


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
]
