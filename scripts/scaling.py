#!/usr/bin/env python3
"""scaling.py - how fast a model trains on many processes: a model of the step, from measured parts.

    scripts/scaling.py                     prints the tables of docs/scaling.md
    scripts/scaling.py --draw FILE.png     draws its curves (gnuplot)
    scripts/scaling.py --check FILE        compares predictions with measured steps

A step on n processes takes

    t(n) = C + W + max(X - B C (k - 1) / k, X / k) + A

    C   computing; strong scaling divides it by n
    W   packing, summing and unpacking gradients, work of the same cores: 0 if n = 1
    X   the bytes on the wire, 2 (n-1)/n of the gradients each way, over the share of the bandwidth
        that messages reach, and for every bucket the latency of its two rounds, of which FLIGHTS
        overlap
    B   the part of a step that is backward, in which buckets can leave
    k   the number of buckets: the first is complete after a kth of backward, the last cannot hide
    A   the agreement: one small message each way
"""
import argparse
import json
import subprocess
import sys

BUCKET = 1 << 20  # bytes of a bucket on the CPU
GPU_BUCKET = 4 << 20
FLIGHTS = 8
BACKWARD = 2 / 3
SHARE = 0.7  # of the bandwidth, that an exchange reaches between two emulated machines

# Measured on machine A of docs/performance.md, two cores: seconds of work for a byte of gradients
# beyond the wire, which is the exchange between two processes of one host.
WORK = 50e-3 / 176e6

# Parameters, and seconds of a step on the two cores of machine A: LM small and RoBERTa as measured
# (docs/performance.md), the others from the ratio of their steps to LM small's in one run.
MODELS = {
    "LM small, 2048 tokens": (44e6, 2048 / 904),
    "LM small, 16384 tokens": (44e6, 16384 / 904),
    "LM large, 2048 tokens": (110e6, 2048 / 904 * 2.52),
    "LM large, 16384 tokens": (110e6, 16384 / 904 * 2.52),
    "ViL-Base, 64 images": (56e6, 2048 / 904 * 8.85),
    "RoBERTa base, 32 x 512": (125e6, 4 * 10.9),
}

# Bytes/s and seconds of latency.
NETWORKS = {
    "1 Gbit": (0.117e9, 50e-6),
    "10 Gbit": (1.15e9, 30e-6),
    "25 Gbit": (2.9e9, 20e-6),
    "100 Gbit": (11.5e9, 10e-6),
    "NVLink": (300e9, 8e-6),
    "InfiniBand 400": (45e9, 12e-6),
}
CPUS = ("1 Gbit", "10 Gbit", "25 Gbit", "100 Gbit")
GPUS = ("25 Gbit", "InfiniBand 400", "NVLink")
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def wire(n, gradients, k, rate, latency):
    """Seconds that n processes need for the bytes of the gradients, in k buckets."""
    rounds = 2 * k / min(k, FLIGHTS)
    return 2 * (n - 1) / n * gradients / (SHARE * rate) + rounds * latency


def exposed(x, k, backward):
    """Seconds that remain of an exchange of x seconds, in k buckets, beside a backward pass of
    `backward` seconds."""
    return max(x - backward * (k - 1) / k, x / k)


def step(n, compute, gradients, rate, latency, work, bucket):
    """Seconds of a step on n processes, of which each computes for `compute` seconds."""
    if n == 1:
        return compute
    k = max(1, gradients / bucket)
    waits = exposed(wire(n, gradients, k, rate, latency), k, BACKWARD * compute)
    return compute + work * gradients + waits + 2 * latency


def efficiency(model, network, n, speed, strong, gpu, bytes_each=4):
    """The share of n times one process's speed; speed: times machine A's two cores."""
    parameters, seconds = MODELS[model]
    one = seconds / speed
    work = 0 if gpu else WORK / speed
    rate, latency = NETWORKS[network]
    many = step(n, one / n if strong else one, bytes_each * parameters, rate, latency, work,
                GPU_BUCKET if gpu else BUCKET)
    return one / (n * many) if strong else one / many


def first_below(limit, *args, **named):
    for n in RANKS[1:]:
        if efficiency(*args, n=n, **named) < limit:
            return str(n)
    return "-"


def table(title, networks, speed, strong, gpu=False):
    print(f"\n{title}\n")
    print("| | step on one |" + "".join(f" {n} |" for n in networks))
    print("|---|---|" + "---|" * len(networks))
    for model, (_, seconds) in MODELS.items():
        cells = []
        for network in networks:
            named = dict(speed=speed, strong=strong, gpu=gpu)
            two, eight = (efficiency(model, network, n, **named) for n in (2, 8))
            cells.append(f" {two:.2f}, {eight:.2f}; {first_below(0.9, model, network, **named)}, "
                         f"{first_below(0.5, model, network, **named)} |")
        print(f"| {model} | {seconds / speed:.3g} s |" + "".join(cells))


NODE = 32     # a node of 64 cores, each as fast as machine A's
H100 = 500    # 300 TFLOP/s beside the 0.6 of machine A's two cores


def tables():
    table("CPU nodes of 64 cores, the batch of the row on each node:", CPUS, NODE, False)
    table("CPU nodes of 64 cores, the batch of the row divided among the nodes:", CPUS, NODE, True)
    table("H100 at 300 TFLOP/s, the batch of the row on each:", GPUS, H100, False, gpu=True)


def draw(path):
    """Efficiency over the number of CPU nodes, a panel for each network."""
    script = [f'set terminal pngcairo size 1200,420 font "sans,10"; set output "{path}"',
              "set multiplot layout 1,3", "set logscale x 2", "set xrange [1:256]",
              "set yrange [0:1.05]", 'set xlabel "nodes of 64 cores"', "set grid"]
    data = []
    for at, network in enumerate(("1 Gbit", "10 Gbit", "100 Gbit")):
        key = "set key bottom left" if at == 2 else "unset key"
        label = 'set ylabel "share of perfect scaling"' if at == 0 else "unset ylabel"
        plots = ", ".join(f"'-' with linespoints title '{model}'" for model in MODELS)
        script += [key, label, f'set title "{network}, the batch on each node"', f"plot {plots}"]
        for model in MODELS:
            script += [f"{n} {efficiency(model, network, n, NODE, False, False)}" for n in RANKS]
            script.append("e")
    subprocess.run(["gnuplot"], input="\n".join(script + data), text=True, check=True)


def check(path):
    """Compares with the lines of bench_exchange, to which scaling.sh has added the rate of the
    network in Mbit/s. The parts are measured in the same network: C as a loop without an exchange,
    X as an exchange without a loop, W as what the loop spends on messages. Returns the largest
    difference."""
    lines = [json.loads(line) for line in open(path)]
    alone = {(m["ranks"], m["rate"]): m["seconds"] for m in lines if m["exchange"] == "exchange"}
    loops = [m for m in lines if m["exchange"] == "loop"]
    worst = 0
    for m in loops:
        where = m["ranks"], m["rate"]
        if where not in alone:
            sys.exit("%s lacks an exchange of %d processes alone at %d Mbit/s" % (path, *where))
        # All of the loop is backward.
        waits = exposed(alone[where], max(1, 1e6 * m["mb"] / BUCKET), m["without"])
        predicted = m["without"] + m["hidden"] + waits
        off = predicted / m["seconds"] - 1
        worst = max(worst, abs(off))
        print("%d processes, %5d Mbit/s, " % where + f'backward of {m["without"]:.2f} s: '
              f'predicted {predicted:.3f} s, measured {m["seconds"]:.3f} s, {100 * off:+.0f} %')
    if not loops:
        sys.exit(f"{path} has no measured loop in a network")
    print(f"largest difference: {100 * worst:.0f} %")
    return worst


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--draw", metavar="FILE")
    p.add_argument("--check", metavar="FILE")
    args = p.parse_args()
    if args.draw:
        draw(args.draw)
    if args.check:
        sys.exit(check(args.check) > 0.1)
    if not args.draw and not args.check:
        tables()


if __name__ == "__main__":
    main()
