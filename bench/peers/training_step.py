"""Training steps in PyTorch: what the scripts share to build, time and report them."""
import os

import torch
import torch.distributed

import measure
from measure import median, resident_mb  # noqa: F401

WARM_UP = 2  # unmeasured first steps, in which torch.compile may compile again


def parser(doc, batch, models=None, metavar="MODEL", without=("channels-last",)):
    p = measure.parser(doc, batch, models, metavar, without)
    p.add_argument("--check", metavar="DIR")
    return p


def run(p, check, bench):
    """Calls check with the folder of --check, and bench with the flags if there is --bench."""
    args = p.parse_args()
    if args.check:
        check(args.check)
    if args.bench:
        torch.set_num_threads(args.threads)
        torch.manual_seed(1)
        bench(args)


def ranks():
    """The number of processes that torchrun started together."""
    return int(os.environ.get("WORLD_SIZE", 1))


def compiled(model, args):
    """The model, compiled with --compile. Under torchrun it is in DistributedDataParallel with
    gloo, and each process takes its part of --batch."""
    model = torch.compile(model, dynamic=False) if args.compile else model
    if ranks() == 1:
        return model
    torch.distributed.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model)


def layout(args):
    return torch.channels_last if args.channels_last else torch.contiguous_format


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)


def step(args, optimiser, loss, *batch):
    """Takes one step; loss(*batch) runs the model."""
    optimiser.zero_grad(set_to_none=True)  # before the forward pass, which then needs less memory
    with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
        value = loss(*batch)
    value.backward()
    optimiser.step()


def times(args, optimiser, draw, loss, warm_up=None):
    """Seconds of each measured step, ascending. draw() gives a batch and is not timed. By default
    an eager model on the CPU takes one unmeasured step first, as ours do, and others WARM_UP."""
    warm_up = warm_up or (WARM_UP if args.compile or args.device != "cpu" else 1)
    wait = torch.cuda.synchronize if args.device != "cpu" else lambda: None
    return measure.times(args, draw, lambda *batch: step(args, optimiser, loss, *batch), wait,
                         warm_up)


def peak_mb(args):
    return resident_mb() if args.device == "cpu" else torch.cuda.max_memory_allocated() / 2**20


def report(args, setting="", **figures):
    """Prints the JSON line; `setting` is appended to the peer's name."""
    if int(os.environ.get("RANK", 0)) > 0:
        return
    peer = f"PyTorch {torch.__version__}" + (", compiled" if args.compile else "")
    peer += (", channels last" if args.channels_last else "") + setting
    if ranks() > 1:
        peer += f", DDP of {ranks()}"
    measure.show(peer, **figures)
