"""Random draws, calls, and the table of cases, for the files of cases.

A case is a function of a Draw that returns a Call; its name is that of an op, or of a row in
rows_*.c:

    @case("cumsum")
    def cumsum(d):
        s = d.shape(1)
        return Call([d.normal(s)], {"axis": d.axis(s)})

PyTorch's function is that of the op in bench/peers/torch_ops.py, with the same options. A Call may
have another one, which gets the inputs as tensors and returns one tensor or several.
"""
import functools

import numpy as np

from torch_ops import OPS

CASES = {}
OTHER_NAMES = {"focal_class": "focal", "grouped_attention": "attention"}  # of cases
# Intended differences and their reasons. Cases avoid drawing them.
MEANT = {}


class Call:
    """inputs: arrays, f64 or integer; None if absent. options: JSON values, by parameter. params
    {name: array}: the parameters of a module, which `function` receives as `params`. gradients
    False: none are compared. op: the row's name if it is not the case's."""

    def __init__(self, inputs, options, function=None, tolerance=1e-9, params=None, gradients=True,
                 op=None):
        self.inputs, self.options, self.function = inputs, options, function
        self.tolerance, self.params = tolerance, params or {}
        self.gradients, self.op = gradients, op


class Case:
    def __init__(self, name, draw, stored):
        self.name, self.draw, self.stored = name, draw, stored


def drawn(f, name, d):
    call = f(d)
    if call.function is None:
        call.function = functools.partial(OPS[OTHER_NAMES.get(name, name)], **call.options)
    return call


def case(*names, stored=3):
    """Registers a case under each name; if there are several, the function gets the name as second
    argument. stored: the number of draws kept for test_compare."""
    def register(f):
        for name in names:
            one = functools.partial(lambda n, d: f(d, n), name) if len(names) > 1 else f
            CASES[name] = Case(name, functools.partial(drawn, one, name), stored)
        return f
    return register


class Draw:
    def __init__(self, rng, number):
        self.rng, self.number = rng, number

    def int(self, low, high):
        """An integer of low..high."""
        return int(self.rng.integers(low, high + 1))

    def flag(self, p=0.5):
        return bool(self.rng.random() < p)

    def pick(self, items):
        return items[self.int(0, len(items) - 1)]

    def real(self, low, high):
        return float(self.rng.uniform(low, high))

    def shape(self, least=0, most=4, size=6, empty=0.04):
        """A shape of least..most axes of up to `size`; a size is 0 with probability `empty`."""
        return [0 if self.flag(empty) else self.int(1, size) for _ in range(self.int(least, most))]

    def axis(self, s):
        """An axis of the shape s, counted from the front or from the end."""
        return self.int(-len(s), len(s) - 1)

    def normal(self, s, scale=1.0):
        return np.asarray(scale * self.rng.standard_normal(s))

    def uniform(self, s, low, high):
        return np.asarray(self.rng.uniform(low, high, s))

    def ints(self, s, below, dtype=None):
        """Integers of [0, below), i32 or i64."""
        return np.asarray(self.rng.integers(0, below, s), dtype or self.pick([np.int32, np.int64]))

    def mask(self, s, p=0.5):
        return np.asarray(self.rng.random(s) < p).astype(np.uint8)

    def broadcast(self, s):
        """A shape that broadcasts to s: sizes of 1, leading axes left out."""
        t = [1 if self.flag(0.3) else n for n in s]
        return t[self.int(0, len(t)) if self.flag(0.3) else 0:]
