"""Ops that move elements."""
import torch.nn.functional as F

from op_cases_kit import Ids

CASES = [
    ("embedding", "4096 of 208x512", lambda w, t: F.embedding(t, w), [(208, 512), Ids(4096, 208)]),
    ("permute", "8x512x8x64 to 0213", lambda x: x.transpose(1, 2).contiguous(), [(8, 512, 8, 64)]),
]
