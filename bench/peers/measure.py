"""What the peers' scripts share whatever their library: flags, clock, memory, the JSON line."""
import argparse
import json
import resource
import time

FLAGS = {
    "device": dict(default="cpu"),
    "dtype": dict(choices=("f32", "bf16"), default="f32", help="bf16 in products alone"),
    "clock": dict(choices=("wall", "cpu"), default="wall", help="cpu: CPU time of all threads"),
    "compile": dict(action="store_true", help="use torch.compile"),
    "channels-last": dict(action="store_true", help="maps and weights in channels-last layout"),
}


def parser(doc, batch, models=None, metavar="MODEL", without=()):
    """Makes the flags; --bench takes a model if there are several. Those in `without` keep their
    defaults."""
    p = argparse.ArgumentParser(description=doc,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    if models:
        p.add_argument("--bench", choices=models, metavar=metavar, help=", ".join(models))
    else:
        p.add_argument("--bench", action="store_true")
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=3)
    for name, flag in FLAGS.items():
        if name in without:
            p.set_defaults(**{name.replace("-", "_"): flag.get("default", False)})
        else:
            p.add_argument("--" + name, **flag)
    return p


def times(args, draw, step, wait=lambda: None, warm_up=1):
    """Seconds of each measured step(*batch), ascending; draw() gives a batch and is not timed."""
    now = time.process_time if args.clock == "cpu" else time.perf_counter
    seconds = []
    for _ in range(warm_up + args.steps):
        batch = draw()
        wait()
        begin = now()
        step(*batch)
        wait()
        seconds.append(now() - begin)
    return sorted(seconds[warm_up:])


def median(ascending):
    return ascending[len(ascending) // 2]


def resident_mb():
    """The largest resident memory of the process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(peer, **figures):
    print(json.dumps({"peer": peer, **figures}), flush=True)
