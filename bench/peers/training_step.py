"""Training steps as the peers' scripts time them: flags, clock, a step, memory, the JSON line."""
import argparse
import json
import os
import resource
import time

import torch
import torch.distributed

WARM_UP = 2  # steps before the measured ones
FLAGS = {
    "device": dict(default="cpu"),
    "dtype": dict(choices=("f32", "bf16"), default="f32", help="bf16 by torch.autocast"),
    "clock": dict(choices=("wall", "cpu"), default="wall", help="cpu: CPU time of all threads"),
    "compile": dict(action="store_true", help="use torch.compile"),
}


def parser(doc, batch, models=None, metavar="MODEL", without=()):
    """Makes the flags; --bench takes a model if there are several. Those in `without` keep their
    defaults."""
    p = argparse.ArgumentParser(description=doc,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", metavar="DIR")
    if models:
        p.add_argument("--bench", choices=models, metavar=metavar, help=", ".join(models))
    else:
        p.add_argument("--bench", action="store_true")
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=3)
    for name, flag in FLAGS.items():
        if name in without:
            p.set_defaults(**{name: flag["default"]})
        else:
            p.add_argument("--" + name, **flag)
    return p


def run(p, check, bench):
    """Checks a folder's cases or measures, as the flags say."""
    args = p.parse_args()
    if args.check:
        check(args.check)
    if args.bench:
        torch.set_num_threads(args.threads)
        torch.manual_seed(1)
        bench(args)


def ranks():
    """The processes that torchrun started together."""
    return int(os.environ.get("WORLD_SIZE", 1))


def compiled(model, args):
    """Under torchrun, DistributedDataParallel with gloo, each process with its part of --batch."""
    model = torch.compile(model, dynamic=False) if args.compile else model
    if ranks() == 1:
        return model
    torch.distributed.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model)


def step(args, optimiser, loss, *batch):
    """loss(*batch) runs the model."""
    with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
        value = loss(*batch)
    optimiser.zero_grad(set_to_none=True)
    value.backward()
    optimiser.step()


def times(args, optimiser, draw, loss, warm_up=WARM_UP):
    """Seconds of each measured step, ascending; draw() gives a batch and is not timed."""
    now = time.process_time if args.clock == "cpu" else time.perf_counter
    wait = torch.cuda.synchronize if args.device != "cpu" else lambda: None
    seconds = []
    for _ in range(warm_up + args.steps):
        batch = draw()
        wait()
        begin = now()
        step(args, optimiser, loss, *batch)
        wait()
        seconds.append(now() - begin)
    return sorted(seconds[warm_up:])


def median(ascending):
    return ascending[len(ascending) // 2]


def resident_mb():
    """The largest resident memory of the process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_mb(args):
    return resident_mb() if args.device == "cpu" else torch.cuda.max_memory_allocated() / 2**20


def report(args, setting="", **figures):
    """Prints the JSON line; `setting` continues the peer's name."""
    if int(os.environ.get("RANK", 0)) > 0:
        return
    peer = f"PyTorch {torch.__version__}" + (", compiled" if args.compile else "") + setting
    if ranks() > 1:
        peer += f", DDP of {ranks()}"
    print(json.dumps({"peer": peer, **figures}), flush=True)
