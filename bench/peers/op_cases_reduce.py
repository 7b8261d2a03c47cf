"""Reductions, what normalises along an axis, and functions along one."""
import functools

import torch


def along(op, apply, rows=1024, columns=1024, axis=1):
    name = f"{rows}x{columns}" + ("" if axis else " down")
    return op, name, functools.partial(apply, dim=axis), [(rows, columns)]


def sort(x, dim):
    return torch.sort(x, dim=dim, stable=True).values


def argsort(x, dim):
    return torch.argsort(x, dim=dim, stable=True)


def top10(x, dim):
    return torch.topk(x, 10, dim).values


def cube(op, apply, which, axis):
    return op, f"128x128x128 {which} axis", functools.partial(apply, dim=axis), [(128, 128, 128)]


CASES = [
    ("softmax", "4096x512", lambda x: x.softmax(-1), [(4096, 512)]),
] + [along(op, apply, axis=axis) for op, apply in (
    ("prod", torch.prod), ("var", torch.var), ("norm", torch.linalg.vector_norm), ("argmin", torch.argmin),
    ("cumsum", torch.cumsum), ("cumprod", torch.cumprod)) for axis in (1, 0)
] + [along("cumsum", torch.cumsum, 64, 16384), along("cumsum", torch.cumsum, 1, 1048576)] + [
    along(op, apply, *sizes) for op, apply in (("sort", sort), ("topk", top10))
    for sizes in ((1024, 1024), (1024, 1024, 0), (64, 16384), (1, 1048576))] + [
    along("argsort", argsort), along("argsort", argsort, 64, 16384)] + [
    cube(op, apply, which, axis)
    for op, apply in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax), ("logsumexp", torch.logsumexp))
    for which, axis in (("last", 2), ("middle", 1), ("first", 0))]
