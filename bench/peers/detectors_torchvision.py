#!/usr/bin/env python3
"""Time and memory of torchvision's RetinaNet and Mask R-CNN with ResNet-50, for bench_detectors.

    detectors_torchvision.py [--model retinanet|mask-rcnn] [--size 320] [--batch 2] [--steps 3]
                             [--threads 1] [--clock cpu] [--channels-last] [--dtype f32|bf16]
                             [--compile]

As in bench_detectors, norms, stem and first stage are frozen. --dtype bf16 uses torch.autocast,
--compile torch.compile of the model. In inference, the regions of Mask R-CNN are anchors, all of
the first category, and none suppresses another, so both programs have 1000 regions and 100
detections. Prints JSON lines.
"""
import argparse
import json
import resource
import statistics
import time

import torch
from torchvision.models import resnet50
from torchvision.models.detection import MaskRCNN, RetinaNet
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["retinanet", "mask-rcnn"], default="retinanet")
parser.add_argument("--size", type=int, default=320)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(1)
now = time.process_time if args.clock == "cpu" else time.perf_counter

body = resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
size = {"min_size": args.size, "max_size": args.size}
if args.model == "retinanet":
    backbone = _resnet_fpn_extractor(body, 3, returned_layers=[2, 3, 4],
                                     extra_blocks=LastLevelP6P7(256, 256))
    model = RetinaNet(backbone, 91, detections_per_img=100, **size)
else:
    model = MaskRCNN(_resnet_fpn_extractor(body, 3), 91, rpn_pre_nms_top_n_test=1000, **size)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
network = torch.compile(model) if args.compile else model
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)

images = [torch.rand(3, args.size, args.size) for _ in range(args.batch)]
boxes, masks = [], []
for k in range(8):
    at, wide = args.size * k / 10, args.size / 5
    boxes.append([at, at, at + wide, at + wide])
    mask = torch.zeros(args.size, args.size, dtype=torch.uint8)
    mask[int(at):int(at + wide), int(at):int(at + wide)] = 1
    masks.append(mask)
target = {"boxes": torch.tensor(boxes), "labels": torch.arange(1, 9), "masks": torch.stack(masks)}


def train():
    model.train()
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
        loss = sum(network(images, [dict(target) for _ in images]).values())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def detect_everywhere():
    if args.model == "mask-rcnn":
        model.rpn.nms_thresh = model.roi_heads.nms_thresh = 1.0
        with torch.no_grad():
            model.rpn.head.bbox_pred.weight.zero_()
            model.roi_heads.box_predictor.bbox_pred.weight.zero_()
            model.roi_heads.box_predictor.cls_score.weight.zero_()
            model.roi_heads.box_predictor.cls_score.bias.copy_(10.0 * (torch.arange(91) == 1))


def infer():
    global detections
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
        detections = len(network(images[:1])[0]["boxes"])


detections = 0
for name, step in [("train", train), ("infer", infer)]:
    if name == "infer":
        detect_everywhere()
    step()
    seconds = []
    for _ in range(args.steps):
        begin = now()
        step()
        seconds.append(now() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6
    print(json.dumps({"detector": args.model, "pass": name,
                      "seconds": round(statistics.median(seconds), 4),
                      "process_mb": round(peak, 1), "channels_last": args.channels_last,
                      "dtype": args.dtype, "compiled": args.compile,
                      "detections": detections}), flush=True)
