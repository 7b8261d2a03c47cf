"""Ops of image models."""
import functools

import torch.nn.functional as F

from op_cases_kit import Map


def conv_case(batch, size, channels, by=1):
    return ("conv2d", f"{batch}x{size}x{size}x{channels} k3", functools.partial(F.conv2d, padding=1),
            [Map(max(batch // by, 1), channels, size, size), Map(channels, channels, 3, 3)])


def depthwise_case(batch, size, channels, stride=1, by=1):
    apply = functools.partial(F.conv2d, padding=1, stride=stride, groups=channels)
    return ("depthwise_conv2d", f"{batch}x{size}x{size}x{channels} k3" + (" s2" if stride == 2 else ""), apply,
            [Map(max(batch // by, 1), channels, size, size), Map(channels, 1, 3, 3)])


def resize(mode):
    return functools.partial(F.interpolate, size=(112, 112), mode=mode)


CASES = [
    conv_case(8, 56, 64), conv_case(8, 28, 128), conv_case(8, 14, 256), conv_case(8, 7, 512),
    depthwise_case(8, 56, 64), depthwise_case(8, 56, 64, 2), depthwise_case(8, 28, 192),
    depthwise_case(8, 28, 192, 2), depthwise_case(8, 14, 384), depthwise_case(8, 14, 384, 2),
    ("max_pool2d", "8x112x112x64 k3 s2", functools.partial(F.max_pool2d, kernel_size=3, stride=2, padding=1),
     [Map(8, 64, 112, 112)]),
    ("avg_pool2d", "8x56x56x64 k2", functools.partial(F.avg_pool2d, kernel_size=2), [Map(8, 64, 56, 56)]),
    ("interpolate", "8x56x56x64 to 112x112", resize("bilinear"), [Map(8, 64, 56, 56)]),
    ("interpolate", "8x56x56x64 to 112x112 bicubic", resize("bicubic"), [Map(8, 64, 56, 56)]),
]
