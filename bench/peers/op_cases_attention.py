"""Attention."""
import torch.nn.functional as F

from op_cases_kit import HEADS, WIDTH


def attention(causal):
    def apply(*inputs):
        q, k, v = (x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2) for x in inputs)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2)  # the layout that the following projection reads
    return apply


CASES = [("attention", "4096 d512 h8" + (" causal" if c else ""), attention(c), [(1, 4096, WIDTH)] * 3)
         for c in (False, True)]
