#!/usr/bin/env python3
"""Compares ops, layers, losses and optimisers with PyTorch's in f64, values and gradients.

    tests/compare/compare_pytorch.py [--program build/release/bin/run_calls] [--draws 200]
                                     [--seed 0] [--only NAME,NAME..] [--store FOLDER]

Each case of tests/compare/cases_*.py draws inputs and options at random; run_calls computes the
same calls with the library. A difference above the case's tolerance, or a call that fails, is
printed with its options, and the exit status is 1. --store writes a few draws of each case, with
PyTorch's results, for test_compare.
"""
import argparse
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench/peers"))

import numpy as np  # noqa: E402
import torch  # noqa: E402

import draw  # noqa: E402
import tensors  # noqa: E402

STORED_BYTES = 2048  # of a stored call
FAMILIES = ["elementwise", "reduce", "shape", "layer", "loss", "optim", "sequence", "transformer",
            "expressed"]


def expected(call, rng):
    """PyTorch's results {name: array}, and the gradients of the outputs {name: array}."""
    inputs = [None if x is None else torch.from_numpy(np.array(x)) for x in call.inputs]
    params = {k: torch.from_numpy(np.array(v)) for k, v in call.params.items()}
    leaves = ([x for x in inputs if x is not None and x.is_floating_point()] if call.gradients
              else [])
    if call.gradients:
        leaves += list(params.values())
    for x in leaves:
        x.requires_grad_()
    result = call.function(*inputs, **({"params": params} if params else {}))
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    out = {f"y{i}": y.detach().numpy() for i, y in enumerate(outputs)}
    back = [(i, y, torch.from_numpy(rng.uniform(-1, 1, tuple(y.shape))))
            for i, y in enumerate(outputs)
            if y.is_floating_point() and y.requires_grad]
    if not leaves or not back:
        return out, {}
    grads = torch.autograd.grad([y for _, y, _ in back], leaves, [g for _, _, g in back],
                                allow_unused=True)
    of = {id(x): g for x, g in zip(leaves, grads)}
    for i, x in enumerate(inputs):
        if x is not None and x.is_floating_point():
            g = torch.zeros_like(x) if of[id(x)] is None else of[id(x)]
            out[f"dx{i}"] = g.detach().numpy()
    for k, x in params.items():
        if of[id(x)] is not None:
            out[f"dp.{k}"] = of[id(x)].numpy()
    return out, {f"dy{i}": g.numpy() for i, _, g in back}


def draw_calls(case, draws, seed):
    """[(call, tensors of the file, expected results)]"""
    drawn = []
    for i in range(draws):
        rng = np.random.default_rng([seed, i, *case.name.encode()])
        call = case.draw(draw.Draw(rng, i))
        want, dy = expected(call, rng)
        given = {f"x{k}": x for k, x in enumerate(call.inputs) if x is not None}
        given.update({f"p.{k}": v for k, v in call.params.items()})
        given.update(dy)
        drawn.append((call, given, want))
    return drawn


def write_calls(path, case, drawn, results):
    """The file that compare.h describes; with results, one that test_compare replays."""
    meta = {"calls": str(len(drawn))}
    arrays = {}
    for i, (call, given, want) in enumerate(drawn):
        options = {"op": call.op or case.name, "tolerance": call.tolerance, **call.options}
        meta[str(i)] = json.dumps(options)
        for k, v in {**given, **(want if results else {})}.items():
            arrays[f"{i}.{k}"] = v
    tensors.write(path, arrays, meta)


def stored_calls(case, seed):
    """The largest calls of few bytes: small enough for the repository, large enough to differ."""
    drawn = draw_calls(case, 8 * case.stored, seed)
    size = [sum(np.asarray(a).nbytes for a in {**given, **want}.values())
            for _, given, want in drawn]
    order = sorted(range(len(drawn)),
                   key=lambda i: (size[i] > STORED_BYTES, abs(STORED_BYTES - size[i])))
    return [drawn[i] for i in sorted(order[:case.stored])]


def difference(got, want):
    if got is None:
        return "is missing"
    if tuple(got.shape) != tuple(want.shape):
        return f"has shape {got.shape}, not {want.shape}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(a - b)) / scale
    return float(np.where(np.isnan(error), np.inf, error).max())


def compare(case, drawn, program, folder):
    """Prints the differences; returns their number of calls and the others' largest error."""
    sent, received = folder / "calls.safetensors", folder / "results.safetensors"
    write_calls(sent, case, drawn, False)
    subprocess.run([program, sent, received], check=True)
    results, meta = tensors.read(received)
    bad, worst = 0, 0.0
    for i, (call, given, want) in enumerate(drawn):
        if f"{i}.error" in meta:
            found = ["fails: " + meta[f"{i}.error"]]
        else:
            found = []
            for k, v in want.items():
                d = difference(results.get(f"{i}.{k}"), v)
                if isinstance(d, str):
                    found.append(f"{k} {d}")
                elif d > call.tolerance:
                    found.append(f"the error of {k} is {d:.3g}")
                else:
                    worst = max(worst, d)
        if found:
            bad += 1
            if bad <= 3:
                shapes = ", ".join(f"{k} {list(v.shape)}" for k, v in given.items() if k[0] == "x")
                print(f"  {case.name} {json.dumps(call.options)} ({shapes}): "
                      f"{'; '.join(found[:3])}")
    return bad, worst


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program",
                        default=str(HERE.parent.parent / "build/release/bin/run_calls"))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--store", type=pathlib.Path,
                        help="write stored calls to this folder and end")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for family in FAMILIES:
        importlib.import_module(f"cases_{family}")
    only = set(filter(None, args.only.split(",")))
    unknown = only - set(draw.CASES)
    if unknown:
        parser.error(f"no case is named {', '.join(sorted(unknown))}")
    cases = [c for n, c in draw.CASES.items() if not only or n in only]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            if args.store:
                args.store.mkdir(parents=True, exist_ok=True)
                write_calls(args.store / f"{case.name}.safetensors", case,
                            stored_calls(case, args.seed), True)
                continue
            bad, worst = compare(case, draw_calls(case, args.draws, args.seed), args.program,
                                 pathlib.Path(folder))
            failed += bad
            print(f"{case.name:24} {args.draws} draws, largest error {worst:.1e}"
                  + (f", {bad} DIFFER" if bad else ""))
    if args.store:
        print(f"{len(cases)} files in {args.store}")
    else:
        print(f"{len(cases)} cases, {failed} calls differ")
        for name, reason in sorted(draw.MEANT.items()):
            print(f"  meant: {name}: {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
