"""Ops that move elements."""
import torch.nn.functional as F

from op_cases_kit import Ids, Map

CASES = [
    ("embedding", "4096 of 208x512", lambda w, t: F.embedding(t, w), [(208, 512), Ids(4096, 208)]),
    ("permute", "8x512x8x64 to 0213", lambda x: x.transpose(1, 2).contiguous(), [(8, 512, 8, 64)]),
    ("flip", "2048x1024 last", lambda x: x.flip(-1), [(2048, 1024)]),
    ("flip", "8x56x56x64 columns", lambda x: x.flip(2), [(8, 56, 56, 64)]),
    ("pad_nd", "8x56x56x64 reflect 1", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), [Map(8, 64, 56, 56)]),
    ("pad_nd", "8x64x56x56 reflect 3", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), [(8, 64, 56, 56)]),
    ("repeat", "1024x512 2x2", lambda x: x.repeat(2, 2), [(1024, 512)]),
    ("repeat_interleave", "1024x512 x4", lambda x: x.repeat_interleave(4, 1), [(1024, 512)]),
]
