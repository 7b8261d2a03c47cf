"""Elementwise ops."""
import torch.nn.functional as F

ROWS = (4096, 512)

CASES = [
    ("mul", "4096x512", lambda x, y: x * y, [ROWS] * 2),
    ("gelu", "4096x512", F.gelu, [ROWS]),
    ("dropout_add", "4096x512", lambda x, r: r + F.dropout(x, 0.2), [ROWS] * 2),
]
