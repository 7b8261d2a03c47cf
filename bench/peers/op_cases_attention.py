"""Attention."""
import torch
import torch.nn.functional as F

from op_cases_kit import HEADS, WIDTH


def attention(causal):
    def apply(*inputs):
        q, k, v = (x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2) for x in inputs)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return y.transpose(1, 2)  # the layout that the following projection reads
    return apply


def grouped(q, k, v):
    q, k, v = (x.view(x.shape[0], x.shape[1], -1, WIDTH // HEADS).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


BIAS = {}


def alibi(q, k, v):
    """The bias of all pairs is made once."""
    n = q.shape[1]
    if n not in BIAS:
        slopes = 2.0 ** -torch.arange(1, HEADS + 1)
        distance = torch.arange(n)[:, None] - torch.arange(n)
        BIAS[n] = (-slopes[:, None, None] * distance).masked_fill(distance < 0, float("-inf"))[None]
    q, k, v = (x.view(1, n, HEADS, WIDTH // HEADS).transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=BIAS[n]).transpose(1, 2)


CASES = [("attention", "4096 d512 h8" + (" causal" if c else ""), attention(c), [(1, 4096, WIDTH)] * 3)
         for c in (False, True)] + [
    ("attention", "2048 d512 h8 causal ALiBi", alibi, [(1, 2048, WIDTH)] * 3),
    ("attention", "2048 d512 h8/2 causal", grouped, [(1, 2048, WIDTH), (1, 2048, 128), (1, 2048, 128)])]
