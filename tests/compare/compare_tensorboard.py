#!/usr/bin/env python3
"""Reads a training program's event files with the package tensorboard.

    tests/compare/compare_tensorboard.py [--programs build/release/bin]

A run is made in two parts, whose second repeats steps that the first has reported, as after a kill.
TensorBoard must then show each number of log.jsonl once, histograms of all parameters, and accept
every record. The exit status is 1 if anything differs. Without the package the script says so.
"""
import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.backend.event_processing import event_file_loader
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def train(programs, run, *flags):
    command = [programs / "first_text", "--run-dir", run, "--eval-every", "0", "--log-every", "2",
               "--tensorboard", "--histograms", "both", *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def continued_run(programs, folder):
    """Its files: up to update 4, and to 8 from the checkpoint of update 4, then lost; to 10."""
    run, kept = folder / "run", folder / "kept"
    train(programs, run, "--steps", "4")
    shutil.copytree(run, kept)
    train(programs, run, "--resume", "--steps", "8")
    for name in ("last.safetensors", "best.safetensors"):
        shutil.copy(kept / name, run / name)
    train(programs, run, "--resume", "--steps", "10")
    return run


def compare_scalars(read, run):
    expected = collections.defaultdict(dict)
    for line in (run / "log.jsonl").read_text().splitlines():
        report = json.loads(line)
        for key, value in report.items():
            if key != "step" and isinstance(value, (int, float)):
                expected[key][report["step"]] = value
    assert set(read.Tags()["scalars"]) == set(expected), (read.Tags()["scalars"], set(expected))
    for tag, points in expected.items():
        found = [(e.step, e.value) for e in read.Scalars(tag)]
        assert found == [(s, np.float32(x)) for s, x in points.items()], (tag, found, points)
    return len(expected)


def compare_histograms(read):
    tags = read.Tags()["histograms"]
    weights = sorted(t[8:] for t in tags if t.startswith("weights/"))
    gradients = sorted(t[10:] for t in tags if t.startswith("gradients/"))
    assert weights == gradients and len(weights) + len(gradients) == len(tags) > 20, tags
    for tag in tags:
        steps = [e.step for e in read.Histograms(tag)]
        assert steps == [4, 10], (tag, steps)
        for e in read.Histograms(tag):
            h = e.histogram_value
            assert sum(h.bucket) == h.num > 0 and h.min <= h.bucket_limit[0], tag
            assert h.bucket_limit[-1] == h.max and sorted(h.bucket_limit) == h.bucket_limit, tag
    return len(tags)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=ROOT / "build/release/bin", type=pathlib.Path)
    programs = parser.parse_args().programs.resolve()
    with tempfile.TemporaryDirectory() as folder:
        run = continued_run(programs, pathlib.Path(folder))
        records = sum(1 for path in run.glob("*tfevents*")
                      for _ in event_file_loader.EventFileLoader(str(path)).Load())
        read = event_accumulator.EventAccumulator(str(run), size_guidance={"scalars": 0,
                                                                           "histograms": 0})
        read.Reload()
        scalars, histograms = compare_scalars(read, run), compare_histograms(read)
    print(f"{records} records; {scalars} curves and {histograms} histograms as in the run")


if __name__ == "__main__":
    main()
