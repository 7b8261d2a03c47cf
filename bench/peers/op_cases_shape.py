"""Ops that move elements."""
import torch.nn.functional as F

from op_cases_kit import Ids, Map

CASES = [
    ("embedding", "4096 of 208x512", lambda w, t: F.embedding(t, w), [(208, 512), Ids(4096, 208)]),
    ("index_select", "64x512x64 middle", lambda x, i: x.index_select(1, i), [(64, 512, 64), Ids(512, 512)]),
    ("index_select", "2048x1024 last", lambda x, i: x.index_select(1, i), [(2048, 1024), Ids(1024, 1024)]),
    ("index_add", "64x512x64 middle", lambda x, i, y: x.index_add(1, i, y),
     [(64, 512, 64), Ids(512, 512), (64, 512, 64)]),
    ("index_add", "2048x1024 last", lambda x, i, y: x.index_add(1, i, y), [(2048, 1024), Ids(1024, 1024), (2048, 1024)]),
    ("permute", "8x512x8x64 to 0213", lambda x: x.transpose(1, 2).contiguous(), [(8, 512, 8, 64)]),
    ("flip", "2048x1024 last", lambda x: x.flip(-1), [(2048, 1024)]),
    ("flip", "8x56x56x64 columns", lambda x: x.flip(2), [(8, 56, 56, 64)]),
    ("pad_nd", "8x56x56x64 reflect 1", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), [Map(8, 64, 56, 56)]),
    ("pad_nd", "8x64x56x56 reflect 3", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), [(8, 64, 56, 56)]),
    ("repeat", "1024x512 2x2", lambda x: x.repeat(2, 2), [(1024, 512)]),
    ("repeat_interleave", "1024x512 x4", lambda x: x.repeat_interleave(4, 1), [(1024, 512)]),
]
