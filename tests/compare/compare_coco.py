#!/usr/bin/env python3
"""compare_coco.py - compares our evaluation of random annotations and detections with pycocotools.

    tests/compare/compare_coco.py [--program FILE] [--sets N] [--seed S]
        compares all figures and curves bit by bit
    tests/compare/compare_coco.py [--program FILE] --time IMAGES [--rounds N]
        measures the processor time of both in turns

FILE is the test program, build/release/bin/coco_figures. The sets have crowds as runs, objects of
several polygons, equal scores, images without objects, images and categories without detections,
more detections than count. Needs pycocotools.
"""
import argparse
import contextlib
import copy
import io
import json
import os
import random
import subprocess
import tempfile
import time

import numpy as np
from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

MODES = ["boxes", "masks", "masks+box_areas", "boxes+one_class", "masks+one_class"]


def polygon(rnd, x, y, w, h):
    n = rnd.randint(3, 12)
    corners = sorted(rnd.uniform(0, 6.283185) for _ in range(n))
    reach = [rnd.uniform(0.6, 1.0) for _ in range(n)]
    points = [(x + w / 2 * (1 + r * np.cos(a)), y + h / 2 * (1 + r * np.sin(a)))
              for a, r in zip(corners, reach)]
    return [round(float(v), 2) for p in points for v in p]


def make(rnd, images, objects, classes, detections, sizes):
    """Annotations and results in COCO's format."""
    ids = rnd.sample(range(1, 40 * classes), classes)
    gt = {"images": [], "annotations": [],
          "categories": [{"id": i, "name": "c%d" % i} for i in ids]}
    dt = []
    seen = ids[: max(1, classes - 1)]  # one category has no objects
    for number in rnd.sample(range(1, 50 * images), images):
        height, width = rnd.choice(sizes)
        gt["images"].append({"id": number, "height": height, "width": width,
                             "file_name": "%012d.jpg" % number})
        boxes = []
        for _ in range(rnd.choice([0] + [rnd.randint(1, objects)] * 4)):
            w, h = width * rnd.uniform(0.02, 0.6), height * rnd.uniform(0.02, 0.6)
            x, y = rnd.uniform(0, width - w), rnd.uniform(0, height - h)
            crowd = rnd.random() < 0.1
            parts = [polygon(rnd, x, y, w, h)]
            if rnd.random() < 0.2:
                parts.append(polygon(rnd, x + w / 2, y + h / 3, w / 2, h / 2))
            runs = masks.merge(masks.frPyObjects(parts, height, width))
            a = {"id": len(gt["annotations"]) + 1, "image_id": number,
                 "category_id": rnd.choice(seen), "bbox": [round(v, 2) for v in (x, y, w, h)],
                 "iscrowd": int(crowd), "area": float(masks.area(runs))}
            if crowd:
                flat = masks.decode(runs).flatten(order="F")
                edges = np.flatnonzero(np.diff(np.concatenate([[0], flat])))
                counts = np.diff(np.concatenate([[0], edges, [flat.size]]))
                a["segmentation"] = {"size": [height, width], "counts": [int(c) for c in counts]}
            else:
                a["segmentation"] = parts
            gt["annotations"].append(a)
            boxes.append((a["bbox"], a["category_id"]))
        for _ in range(rnd.choice([0] + [rnd.randint(1, detections)] * 5)):
            if boxes and rnd.random() < 0.7:
                (x, y, w, h), c = rnd.choice(boxes)
                s = rnd.choice([0.0, 0.05, 0.15, 0.3])
                x, y, w, h = (x + s * w * rnd.gauss(0, 1), y + s * h * rnd.gauss(0, 1),
                              w * np.exp(s * rnd.gauss(0, 1)), h * np.exp(s * rnd.gauss(0, 1)))
                c = c if rnd.random() < 0.9 else rnd.choice(ids)
            else:
                w, h = width * rnd.uniform(0.02, 0.6), height * rnd.uniform(0.02, 0.6)
                x, y, c = rnd.uniform(0, width - w), rnd.uniform(0, height - h), rnd.choice(ids)
            runs = masks.frPyObjects([polygon(rnd, x, y, w, h)], height, width)[0]
            dt.append({"image_id": number, "category_id": c,
                       "bbox": [round(float(v), 2) for v in (x, y, w, h)],
                       "score": round(rnd.random(), rnd.choice([1, 2, 6])),
                       "segmentation": {"size": [height, width],
                                        "counts": runs["counts"].decode()}})
    rnd.shuffle(gt["annotations"])
    rnd.shuffle(dt)
    return gt, dt


def theirs(gt, dt, mode, limits):
    """pycocotools' evaluation, and the seconds that it took without reading."""
    dt = copy.deepcopy(dt)
    if mode == "masks" or mode == "masks+one_class":
        for d in dt:
            del d["bbox"]
    with contextlib.redirect_stdout(io.StringIO()):
        g = COCO()
        g.dataset = copy.deepcopy(gt)
        g.createIndex()
        d = g.loadRes(dt)
        begin = time.process_time()
        e = COCOeval(g, d, "segm" if mode.startswith("masks") else "bbox")
        e.params.useCats = 0 if mode.endswith("one_class") else 1
        e.params.maxDets = limits
        e.evaluate()
        e.accumulate()
        e.summarize()
        return e, time.process_time() - begin


def ours(program, files, mode, limits):
    """Figures, precision, scores, recall, and the seconds of the evaluation only."""
    run = subprocess.run([program, *files, mode] + [str(m) for m in limits], capture_output=True)
    if run.returncode:
        raise SystemExit("%s: %s" % (program, run.stderr.decode()))
    return np.frombuffer(run.stdout), float(run.stderr)


def differs(e, x):
    """Names of the results that differ in any bit."""
    p, r = e.eval["precision"], e.eval["recall"]
    parts = {"figures": np.array(e.stats), "precision": p, "scores": e.eval["scores"], "recall": r}
    wrong, at = [], 0
    for name, wanted in parts.items():
        got = x[at : at + wanted.size].reshape(wanted.shape)
        at += wanted.size
        if not np.array_equal(got, wanted):
            wrong.append(name)
    return wrong


def write(folder, gt, dt):
    files = [os.path.join(folder, "gt.json"), os.path.join(folder, "dt.json")]
    for name, x in zip(files, (gt, dt)):
        with open(name, "w") as f:
            json.dump(x, f)
    return files


def compare(options, folder):
    failed = 0
    for k in range(options.sets):
        rnd = random.Random(options.seed + k)
        gt, dt = make(rnd, rnd.randint(1, 30), rnd.randint(1, 12), rnd.randint(1, 8),
                      rnd.choice([3, 20, 150]), [(100, 140), (333, 250), (480, 640)])
        if not dt:
            continue
        files = write(folder, gt, dt)
        limits = rnd.choice([[1, 10, 100], [2, 5, 100]])
        for mode in MODES:
            wrong = differs(theirs(gt, dt, mode, limits)[0],
                            ours(options.program, files, mode, limits)[0])
            if wrong:
                failed += 1
                print("set %d, %s: %s differ" % (options.seed + k, mode, ", ".join(wrong)))
    print("%d sets, %d differences" % (options.sets, failed))
    return failed


def measure(options, folder):
    gt, dt = make(random.Random(options.seed), options.time, 14, 80, 30,
                  [(480, 640), (427, 640), (640, 480)])
    files = write(folder, gt, dt)
    print("%d images, %d objects, %d detections" % (options.time, len(gt["annotations"]), len(dt)))
    for mode in MODES[:2]:
        a, b = [], []
        for _ in range(options.rounds):
            x, seconds = ours(options.program, files, mode, [1, 10, 100])
            a.append(seconds)
            e, seconds = theirs(gt, dt, mode, [1, 10, 100])
            b.append(seconds)
        print("%s: ours %.3f s, pycocotools %.3f s, %.1f times as fast; %s" % (
            mode, np.median(a), np.median(b), np.median(b) / np.median(a),
            differs(e, x) or "equal"))
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program",
                        default=os.path.join(os.path.dirname(__file__),
                                             "../../build/release/bin/coco_figures"))
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(1 if (measure if options.time else compare)(options, folder) else 0)


main()
