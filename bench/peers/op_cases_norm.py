"""Normalisation."""
import torch
import torch.nn.functional as F

from op_cases_kit import Map


def batch_norm(x, w, b):
    return F.batch_norm(x, torch.zeros_like(w), torch.ones_like(w), w, b, training=True)


def group_norm(x, w, b):
    return F.group_norm(x, 32, w, b)


CASES = [
    ("batchnorm", "8x56x56x64", batch_norm, [Map(8, 64, 56, 56), (64,), (64,)]),
    ("batchnorm", "8x14x14x384", batch_norm, [Map(8, 384, 14, 14), (384,), (384,)]),
    ("instancenorm", "8x56x56x64", F.instance_norm, [Map(8, 64, 56, 56)]),
    ("groupnorm", "8x56x56x64 g32", group_norm, [Map(8, 64, 56, 56), (64,), (64,)]),
    ("groupnorm", "8x14x14x512 g32", group_norm, [Map(8, 512, 14, 14), (512,), (512,)]),
    ("layernorm", "2048x512", lambda x, w, b: F.layer_norm(x, (512,), w, b), [(2048, 512), (512,), (512,)]),
]
