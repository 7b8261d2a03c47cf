"""Ops of image models."""
import functools

import torch
import torch.nn.functional as F

from op_cases_kit import Map


def conv_case(batch, size, channels, by=1):
    return ("conv2d", f"{batch}x{size}x{size}x{channels} k3", functools.partial(F.conv2d, padding=1),
            [Map(max(batch // by, 1), channels, size, size), Map(channels, channels, 3, 3)])


def conv_relu(x, w):
    return F.relu(F.conv2d(x, w, padding=1) + x)


def depthwise_case(batch, size, channels, stride=1, by=1):
    apply = functools.partial(F.conv2d, padding=1, stride=stride, groups=channels)
    return ("depthwise_conv2d", f"{batch}x{size}x{size}x{channels} k3" + (" s2" if stride == 2 else ""), apply,
            [Map(max(batch // by, 1), channels, size, size), Map(channels, 1, 3, 3)])


def transpose_case(batch, size, channels, to, kernel):
    return ("conv_transpose2d", f"{batch}x{size}x{size}x{channels} to {to} k{kernel} s2",
            functools.partial(F.conv_transpose2d, stride=2, padding=kernel // 2 - 1),
            [Map(batch, channels, size, size), Map(channels, to, kernel, kernel)])


def resize(mode):
    return functools.partial(F.interpolate, size=(112, 112), mode=mode)


@functools.cache
def regions():
    """512 regions of 60 to 220 pixels of two images of 512 x 512, as in bench/op_cases_image.c."""
    rows = []
    for r in range(512):
        w, h = 60 + r * 53 % 161, 60 + r * 97 % 161
        left, top = r * 149 % 293 * (512 - w) / 293, r * 211 % 307 * (512 - h) / 307
        rows.append([r % 2, left, top, left + w, top + h])
    return torch.tensor(rows)


def pool_regions(side, x):
    import torchvision  # only this op needs it
    return torchvision.ops.roi_align(x, regions().to(x), side, 0.125, 0, True)


CASES = [
    conv_case(8, 56, 64), conv_case(8, 28, 128), conv_case(8, 14, 256), conv_case(8, 7, 512),
    ("conv2d_relu", "8x56x56x64 k3", conv_relu, [Map(8, 64, 56, 56), Map(64, 64, 3, 3)]),
    depthwise_case(8, 56, 64), depthwise_case(8, 56, 64, 2), depthwise_case(8, 28, 192),
    depthwise_case(8, 28, 192, 2), depthwise_case(8, 14, 384), depthwise_case(8, 14, 384, 2),
    ("conv1d", "8x3000x128 k3", functools.partial(F.conv1d, padding=1), [(8, 128, 3000), (128, 128, 3)]),
    transpose_case(8, 28, 128, 64, 2), transpose_case(8, 28, 128, 64, 4),
    ("max_pool2d", "8x112x112x64 k3 s2", functools.partial(F.max_pool2d, kernel_size=3, stride=2, padding=1),
     [Map(8, 64, 112, 112)]),
    ("avg_pool2d", "8x56x56x64 k2", functools.partial(F.avg_pool2d, kernel_size=2), [Map(8, 64, 56, 56)]),
    ("avg_pool2d", "8x56x56x64 k3 s2 ceil",
     functools.partial(F.avg_pool2d, kernel_size=3, stride=2, padding=1, ceil_mode=True), [Map(8, 64, 56, 56)]),
    ("adaptive_max_pool2d", "8x56x56x64 to 7x7", functools.partial(F.adaptive_max_pool2d, output_size=7),
     [Map(8, 64, 56, 56)]),
    ("adaptive_avg_pool2d", "8x56x56x64 to 24x24", functools.partial(F.adaptive_avg_pool2d, output_size=24),
     [Map(8, 64, 56, 56)]),
    ("unfold", "8x56x56x64 k3", functools.partial(F.unfold, kernel_size=3, padding=1), [(8, 64, 56, 56)]),
    ("unfold", "8x224x224x3 k16 s16", functools.partial(F.unfold, kernel_size=16, stride=16), [(8, 3, 224, 224)]),
    ("fold", "8x56x56x64 k3", functools.partial(F.fold, output_size=56, kernel_size=3, padding=1),
     [(8, 576, 3136)]),
    ("interpolate", "8x56x56x64 to 112x112", resize("bilinear"), [Map(8, 64, 56, 56)]),
    ("interpolate", "8x56x56x64 to 112x112 nearest", resize("nearest"), [Map(8, 64, 56, 56)]),
    ("interpolate", "8x56x56x64 to 112x112 bicubic", resize("bicubic"), [Map(8, 64, 56, 56)]),
    ("roi_align", "512 of 2x64x64x256 to 7x7", functools.partial(pool_regions, 7), [Map(2, 256, 64, 64)]),
    ("roi_align", "512 of 2x64x64x256 to 14x14", functools.partial(pool_regions, 14), [Map(2, 256, 64, 64)]),
]
