"""Losses."""
import torch.nn.functional as F

from op_cases_kit import Ids

CASES = [
    ("cross_entropy", "2048x208", F.cross_entropy, [(2048, 208), Ids(2048, 208)]),
]
