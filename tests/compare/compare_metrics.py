#!/usr/bin/env python3
"""Compares <tapegrad/metrics.h> with scikit-learn: random predictions, ties, absent classes.

    tests/compare/compare_metrics.py [--program build/release/bin/metrics_figures] [--draws 500]

The exit status is 1 if a figure differs by more than 1e-12. Skipped without scikit-learn.
"""
import argparse
import subprocess
import sys
import warnings

try:
    import numpy as np
    from sklearn import metrics
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(0)


def draw(rng):
    classes, n = int(rng.integers(2, 7)), int(rng.integers(1, 60))
    used = int(rng.integers(1, classes + 1))
    target = rng.integers(0, used, n)
    predicted = np.where(rng.random(n) < 0.5, target, rng.integers(0, classes, n))
    score = np.round(rng.standard_normal(n) + (target > 0), int(rng.integers(0, 3)))
    return classes, target, predicted, score


def expected(classes, target, predicted, score):
    labels = list(range(classes))
    known = (target > 0).any() and (target == 0).any()
    out = [metrics.accuracy_score(target, predicted),
           metrics.balanced_accuracy_score(target, predicted),
           metrics.roc_auc_score(target > 0, score) if known else np.nan]
    for average in ("macro", "micro", "weighted"):
        out += metrics.precision_recall_fscore_support(
            target, predicted, labels=labels, average=average, zero_division=0)[:3]
    each = metrics.precision_recall_fscore_support(target, predicted, labels=labels,
                                                   zero_division=0)
    return out + [figure[k] for k in labels for figure in each[:3]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="build/release/bin/metrics_figures")
    parser.add_argument("--draws", type=int, default=500)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    cases = [draw(rng) for _ in range(args.draws)]
    lines = []
    for classes, target, predicted, score in cases:
        lines.append(f"{classes} {len(target)}")
        lines += [f"{t} {p} {s!r}" for t, p, s in zip(target, predicted, score.tolist())]
    done = subprocess.run([args.program], input="\n".join(lines), text=True, check=True,
                          stdout=subprocess.PIPE)
    results = [[float(x) for x in line.split()] for line in done.stdout.splitlines()]
    assert len(results) == len(cases), "a case has no result"
    bad, worst = 0, 0.0
    for i, (case, got) in enumerate(zip(cases, results)):
        want = np.array(expected(*case), dtype=float)
        got = np.array(got)
        same = np.isnan(got) == np.isnan(want)
        error = np.nanmax(np.abs(got - want)) if same.all() else np.inf
        worst = max(worst, error)
        if error > 1e-12:
            print(f"draw {i}: {got}, not {want}")
            bad += 1
    print(f"{len(cases)} draws, largest error {worst:.2g}, {bad} differ")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
