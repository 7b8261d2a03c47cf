"""Times PyTorch's ops like bench_ops: the same names and shapes, one JSON line for each direction.

    ops_pytorch.py [--device cpu|cuda] [--dtype f32|bf16] [--compile] [--filter text]
                   [--threads n] [--clock wall|cpu] [--seconds s] [--smoke] [--layout last|first]

The cases of each family are in op_cases_FAMILY.py, those for a GPU in op_cases_cuda.py. Attention is
scaled_dot_product_attention on [B,heads,tokens,64] views of packed [B,tokens,512] tensors, as a model calls it.
CUDA is timed by GPU events; the work is queued behind other work so that the GPU does not wait for the host. --compile
uses torch.compile for everything but attention. --smoke: small versions of the CUDA cases, on any device, to try
this program. --layout: the memory layout of images and convolution weights, channels last or first.
"""
import argparse
import json
import time

import torch

import op_cases_attention
import op_cases_create
import op_cases_cuda
import op_cases_elementwise
import op_cases_image
import op_cases_loss
import op_cases_norm
import op_cases_product
import op_cases_recurrent
import op_cases_reduce
import op_cases_shape
import op_cases_update
from op_cases_kit import Ids, Map, Numbers
from op_cases_update import Update

LAYOUTS = {"last": torch.channels_last, "first": torch.contiguous_format}


def cases(device, smoke):
    """(op, shape, function, descriptions of the inputs)"""
    if device != "cpu" or smoke:
        return op_cases_cuda.cases(smoke)
    families = (op_cases_product, op_cases_norm, op_cases_loss, op_cases_attention, op_cases_image,
                op_cases_recurrent, op_cases_elementwise, op_cases_reduce, op_cases_shape,
                op_cases_create, op_cases_update)
    return [case for family in families for case in family.CASES]


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


def make(shape, args):
    if isinstance(shape, Ids):
        size = shape.count if isinstance(shape.count, tuple) else (shape.count,)
        return torch.randint(0, shape.below, size, device=args.device)
    if isinstance(shape, Numbers):
        x = torch.rand(shape.shape, device=args.device)
        return (x if shape.unit else x * 2 - 1).requires_grad_(not shape.fixed)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    layout = LAYOUTS[args.layout] if isinstance(shape, Map) else torch.contiguous_format
    return (torch.rand(tuple(shape), device=args.device) * 2 - 1).to(dtype, memory_format=layout).requires_grad_()


def update(apply, x, args, clock):
    """Seconds of the fastest way."""
    x.grad, ways = torch.rand_like(x), []
    for optimiser in apply.optimisers(x):
        times = []
        while len(times) < 4 or sum(times) < args.seconds:
            times.append(clock.seconds(optimiser.step)[1])
        ways.append(sorted(times[2:]))
    return min(ways, key=lambda t: t[len(t) // 2])


def directions(op, apply, shapes, args, clock):
    """Seconds by direction, without the first two repetitions."""
    inputs = [make(s, args) for s in shapes]
    if isinstance(apply, Update):
        return [("forward", update(apply, inputs[0], args, clock))]
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
            x.grad = None
        times.append((forward, backward))
    return zip(("forward", "backward"), map(sorted, zip(*times[2:])))


def measure(op, name, apply, shapes, args, clock):
    if args.compile and op != "attention" and not isinstance(apply, Update):
        apply = torch.compile(apply)
    for direction, seconds in directions(op, apply, shapes, args, clock):
        print(json.dumps({
            "peer": f"PyTorch {torch.__version__}" + (", compiled" if args.compile else ""), "op": op,
            "direction": direction, "shape": name, "device": args.device, "dtype": args.dtype,
            "threads": args.threads, "ms": round(1e3 * seconds[len(seconds) // 2], 4),
            "best_ms": round(1e3 * seconds[0], 4), "smoke": args.smoke,
        }), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--filter", default="", help="only ops whose name and shape contain this")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    p.add_argument("--seconds", type=float, default=0.5, help="of each case and direction")
    p.add_argument("--layout", choices=LAYOUTS, default="last")
    p.add_argument("--smoke", action="store_true", help="small shapes; the figures mean nothing")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    clock = HostClock(args.clock == "cpu") if args.device == "cpu" else CardClock()
    for op, name, apply, shapes in cases(args.device, args.smoke):
        if args.filter in f"{op} {name}" and (args.dtype == "f32" or not isinstance(apply, Update)):
            measure(op, name, apply, shapes, args, clock)


if __name__ == "__main__":
    main()
