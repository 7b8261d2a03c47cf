"""Tensors that are made on the device, and triangles."""
import torch

MANY = 1048576


def made(op, name, make):
    return op, name, lambda: make(MANY), []


CASES = [
    made("arange", "1M f32", lambda n: torch.arange(0, n, dtype=torch.float32)),
    made("arange", "1M i64", torch.arange),
    made("rand", "1M", torch.rand),
    made("randn", "1M", torch.randn),
    ("tril", "1024x1024", torch.tril, [(1024, 1024)]),
]
