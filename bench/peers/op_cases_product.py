"""Products."""
import torch.nn.functional as F


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


CASES = [
    ("linear", "2048x512->512", F.linear, [(2048, 512), (512, 512), (512,)]),
    ("linear", "2048x2048->512", F.linear, [(2048, 2048), (512, 2048), (512,)]),
    ("linear_gelu", "2048x512->2048", linear_gelu, [(2048, 512), (2048, 512), (2048,)]),
]
