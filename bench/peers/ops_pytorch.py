"""Times PyTorch's ops like bench_ops: the same cases, one JSON line for each direction.

    ops_pytorch.py [--device cpu|cuda] [--dtype f32|bf16] [--compile] [--filter text]
                   [--threads n] [--clock wall|cpu] [--seconds s] [--smoke] [--layout last|first]
                   [--program bench_ops]

bench_ops --list prints the cases; torch_ops.py has PyTorch's function for each op, and op_cases.py
the functions for cases that need another one. Cases without any are left out. Attention is
scaled_dot_product_attention on [B,heads,tokens,64] views of packed [B,tokens,512] tensors, as a
model calls it. CUDA is timed by GPU events; the work is queued behind other work so that the GPU
does not wait for the host. --compile uses torch.compile for everything but attention. --smoke:
small versions of the CUDA cases, on any device, to try this program. --layout: the memory layout of
images and convolution weights, channels last or first.
"""
import argparse
import json
import pathlib
import subprocess
import time

import torch

import op_cases
from torch_ops import OPS

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/bench_ops"


class HostClock:
    def __init__(self, processor):
        self.now = time.process_time if processor else time.perf_counter

    def seconds(self, work):
        start = self.now()
        result = work()
        return result, self.now() - start


class CardClock:
    def __init__(self):
        self.other = torch.zeros(134217728, device="cuda")

    def seconds(self, work):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(4):
            self.other.max()
        begin.record()
        result = work()
        end.record()
        torch.cuda.synchronize()
        return result, 1e-3 * begin.elapsed_time(end)


def cases(args):
    how = ["--list", "yes"]
    if args.device != "cpu" or args.smoke:
        how += ["--device", "cuda", "--smoke", "yes" if args.smoke else "no"]
    lines = subprocess.run([args.program, *how], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def value(text):
    """3, 0.5, [1, 2] or a word"""
    try:
        return json.loads(f"[{text}]" if "," in text else text)
    except json.JSONDecodeError:
        return text


def function(case):
    """PyTorch's function of the case's inputs, or None if there is none."""
    f = op_cases.CALLS.get((case["op"], case["shape"])) or op_cases.OPS.get(case["call"])
    f = f or OPS.get(case["call"])
    options = {k: value(v) for k, v in (word.split("=", 1) for word in case["args"].split())}
    if f is None:
        return None

    def apply(*inputs):
        y = f(*inputs, **options)
        return y[0] if isinstance(y, tuple) else y
    return apply


def make(case, i, args):
    """Makes input i as bench_ops describes it; maps [B,H,W,C] and kernels [K,C,h,w] get the
    layout of --layout."""
    given = case["inputs"][i]
    if given is None:
        return None
    shapes = op_cases.SHAPES.get((case["op"], case["shape"]), {})
    shape = shapes.get(len(given["shape"]), given["shape"])
    if given["below"]:
        return torch.randint(0, given["below"], shape, device=args.device)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    x = torch.rand(shape, device=args.device)
    x = (x if given["unit"] else x * 2 - 1).to(dtype)
    if case["call"] in op_cases.MAPS and len(shape) == 4:
        kernel = i == 1 and "conv" in case["call"]
        planes = case["call"] in op_cases.PLANES or args.layout == "first"
        if kernel and not planes:
            x = x.contiguous(memory_format=torch.channels_last)
        elif planes and not kernel:
            x = x.movedim(-1, 1).contiguous().movedim(1, -1)
    return x.requires_grad_(not given["fixed"])


def update(case, x, args, clock):
    """Seconds of the fastest way to update x from its existing gradient."""
    kind, ways = op_cases.UPDATES[case["op"]]
    x.grad, found = torch.rand_like(x), []
    for way in (None, *ways):
        optimiser = kind([x], lr=1e-3, **({way: True} if way else {}))
        times = []
        while len(times) < 4 or sum(times) < args.seconds:
            times.append(clock.seconds(optimiser.step)[1])
        found.append(sorted(times[2:]))
    return min(found, key=lambda t: t[len(t) // 2])


def directions(case, apply, args, clock):
    """Seconds by direction, without the first two repetitions."""
    inputs = [make(case, i, args) for i in range(len(case["inputs"]))]
    if case["update"]:
        return [("forward", update(case, inputs[0], args, clock))]
    probe, times = None, []
    while len(times) < 4 or sum(map(sum, times)) < 2 * args.seconds:
        y, forward = clock.seconds(lambda: apply(*inputs))
        if not y.requires_grad:
            times.append((forward,))
            continue
        if probe is None:
            probe = torch.rand_like(y) - 0.5
        _, backward = clock.seconds(lambda: y.backward(probe))
        for x in inputs:
            if x is not None:
                x.grad = None
        times.append((forward, backward))
    return zip(("forward", "backward"), map(sorted, zip(*times[2:])))


def measure(case, apply, args, clock):
    if args.compile and case["op"] != "attention" and not case["update"]:
        apply = torch.compile(apply)
    for direction, seconds in directions(case, apply, args, clock):
        print(json.dumps({
            "peer": f"PyTorch {torch.__version__}" + (", compiled" if args.compile else ""),
            "op": case["op"], "direction": direction, "shape": case["shape"],
            "device": args.device, "dtype": args.dtype,
            "threads": args.threads, "ms": round(1e3 * seconds[len(seconds) // 2], 4),
            "best_ms": round(1e3 * seconds[0], 4), "smoke": args.smoke,
        }), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--filter", default="", help="only ops whose name and shape contain this")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    p.add_argument("--seconds", type=float, default=0.5, help="of each case and direction")
    p.add_argument("--layout", choices=("last", "first"), default="last")
    p.add_argument("--smoke", action="store_true", help="small shapes; the figures mean nothing")
    p.add_argument("--program", default=str(PROGRAM), help="bench_ops, which lists the cases")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    clock = HostClock(args.clock == "cpu") if args.device == "cpu" else CardClock()
    for case in cases(args):
        apply = None if case["update"] else function(case)
        known = apply is not None
        if case["update"]:
            known = case["op"] in op_cases.UPDATES and args.dtype == "f32"
        if known and args.filter in f"{case['op']} {case['shape']}":
            measure(case, apply, args, clock)


if __name__ == "__main__":
    main()
