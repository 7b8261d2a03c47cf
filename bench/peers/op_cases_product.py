"""Products."""
import torch
import torch.nn.functional as F


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b))


def einsum_case(name, *shapes):
    """The name begins with the specification."""
    return "einsum", name, lambda *x: torch.einsum(name.split()[0], *x), list(shapes)


def swiglu(x, w, up):
    return F.silu(F.linear(x, w)) * F.linear(x, up)


CASES = [
    ("linear", "2048x512->512", F.linear, [(2048, 512), (512, 512), (512,)]),
    ("linear", "2048x2048->512", F.linear, [(2048, 2048), (512, 2048), (512,)]),
    ("linear_gelu", "2048x512->2048", linear_gelu, [(2048, 512), (2048, 512), (2048,)]),
    ("glu_linear", "2048x512->1024 SwiGLU", swiglu, [(2048, 512), (1024, 512), (1024, 512)]),
    einsum_case("bij,bjk->bik 8x512x512x512", (8, 512, 512), (8, 512, 512)),
    einsum_case("bhqd,bhkd->bhqk 4x8x512x512x64", (4, 8, 512, 64), (4, 8, 512, 64)),
    einsum_case("bqhd,bkhd->bhqk 4x8x512x512x64", (4, 512, 8, 64), (4, 512, 8, 64)),
    einsum_case("bi,oij,bj->bo 256x128x128x128", (256, 128), (128, 128, 128), (256, 128)),
    einsum_case("bchw,oc->bohw 8x256x28x28 to 256", (8, 256, 28, 28), (256, 256)),
    einsum_case("bi,bi->b 4096x512", (4096, 512), (4096, 512)),
    einsum_case("bii->bi 64x256x256", (64, 256, 256)),
]
