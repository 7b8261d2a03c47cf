"""The cases for a GPU."""
import torch
import torch.nn.functional as F

from op_cases_attention import attention
from op_cases_image import conv_case, depthwise_case
from op_cases_kit import WIDTH, Ids
from op_cases_product import linear_gelu
from op_cases_update import Update

ROWS = 65536


def cases(smoke):
    by = 64 if smoke else 1
    n, side, texts = ROWS // by, 8192 // by, 1 if smoke else 8
    rows, long = (n, WIDTH), 134217728 // by // by
    return [
        ("matmul", "8192x8192x8192", torch.matmul, [(side, side)] * 2),
        ("copy", "y = 2x, 128M elements", lambda x: x * 2.0, [(long,)]),
        ("linear", "65536x512->512", F.linear, [rows, (512, 512), (512,)]),
        ("linear", "65536x2048->512", F.linear, [(n, 2048), (512, 2048), (512,)]),
        ("linear_gelu", "65536x512->2048", linear_gelu, [rows, (2048, 512), (2048,)]),
        ("mul", "65536x512", lambda x, y: x * y, [rows, rows]),
        ("gelu", "65536x512", F.gelu, [rows]),
        ("softmax", "65536x512", lambda x: x.softmax(-1), [rows]),
        ("layernorm", "65536x512", lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b), [rows, (WIDTH,), (WIDTH,)]),
        ("dropout_add", "65536x512", lambda x, r: r + F.dropout(x, 0.2), [rows, rows]),
        ("cross_entropy", "65536x208", lambda x, t: F.cross_entropy(x.float(), t), [(n, 208), Ids(n, 208)]),
        ("cross_entropy", "8192x50265", lambda x, t: F.cross_entropy(x.float(), t), [(side, 50265), Ids(side, 50265)]),
        ("embedding", "65536 of 208x512", lambda w, t: F.embedding(t, w), [(208, WIDTH), Ids(n, 208)]),
        ("permute", "8x8192x8x64 to 0213", lambda x: x.transpose(1, 2).contiguous(), [(8, side, 8, 64)]),
        depthwise_case(64, 56, 96, 1, by),
        conv_case(64, 56, 64, by),
        conv_case(64, 14, 256, by),
        ("adamw", "64M elements", Update(torch.optim.AdamW), [(long // 2,)]),
        ("attention", "8x4096 d512 h8", attention(False), [(texts, 4096 // by, WIDTH)] * 3),
        ("attention", "8x4096 d512 h8 causal", attention(True), [(texts, 4096 // by, WIDTH)] * 3),
    ]
