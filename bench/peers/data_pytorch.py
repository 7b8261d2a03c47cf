#!/usr/bin/env python3
"""Runs the cases of bench_data with torchvision's transforms on Pillow and prints JSON lines.

    data_pytorch.py --folder DIR [--images n]

Reads the images that bench_data created in DIR, in one process without workers; images_per_s is per
second of CPU time. Resizing is bicubic, as in the papers' recipes. RandAugment is torchvision's: it
always applies 2 of its 14 operations at magnitude 9; the papers' apply each with probability 1/2.
"""
import argparse
import json
import os
import time

import PIL
import torch
import torchvision
from torchvision import transforms as t

CUBIC = t.InterpolationMode.BICUBIC
NORMAL = [t.ToTensor(), t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]


def pipeline(size, kind):
    if kind == "eval":
        return t.Compose([t.Resize(int(size / 0.875), CUBIC), t.CenterCrop(size), *NORMAL])
    steps = [t.RandomResizedCrop(size, interpolation=CUBIC), t.RandomHorizontalFlip()]
    if kind == "plain":
        return t.Compose(steps + NORMAL)
    return t.Compose([*steps, t.RandAugment(2, 9, interpolation=CUBIC), *NORMAL,
                      t.RandomErasing(0.25, value="random")])


CASES = [
    ("224 from 500 x 375: evaluation", "large", 224, "eval"),
    ("224 from 500 x 375: crop, flip", "large", 224, "plain"),
    ("224 from 500 x 375: RandAugment, erasing too", "large", 224, "full"),
    ("64 from 64 x 64: crop, flip", "small", 64, "plain"),
    ("64 from 64 x 64: RandAugment, erasing too", "small", 64, "full"),
]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", required=True)
    p.add_argument("--images", type=int, default=1024)
    args = p.parse_args()
    torch.set_num_threads(1)
    for name, folder, size, kind in CASES:
        path = os.path.join(args.folder, folder)
        data = torchvision.datasets.ImageFolder(path, pipeline(size, kind))
        for i in range(16):
            data[i]
        begin = time.process_time()
        for i in range(args.images):
            data[i % len(data)]
        seconds = time.process_time() - begin
        print(json.dumps({
            "peer": f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}",
            "data": name, "images": args.images, "images_per_s": args.images / seconds}),
            flush=True)


if __name__ == "__main__":
    main()
