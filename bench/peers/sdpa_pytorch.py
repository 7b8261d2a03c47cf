"""Times PyTorch's scaled_dot_product_attention as bench_ops times tp_attention: 4096 tokens, 8 heads of 64.

    sdpa_pytorch.py [--threads n] [--clock wall|cpu] [--seconds s]

Prints one JSON line for each direction, with and without the causal mask. The op gets [1,heads,tokens,64]
views of packed [1,tokens,512] tensors, which is how a model calls it.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

TOKENS, HEADS, WIDTH = 4096, 8, 512


def heads_of(x):
    return x.view(1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)


def step(inputs, probe, causal, now):
    """Seconds of one forward and one backward."""
    start = now()
    y = F.scaled_dot_product_attention(*(heads_of(x) for x in inputs), is_causal=causal)
    middle = now()
    y.backward(probe)
    end = now()
    for x in inputs:
        x.grad = None
    return middle - start, end - middle


def measure(causal, args):
    now = time.process_time if args.clock == "cpu" else time.perf_counter
    inputs = [(torch.rand(1, TOKENS, WIDTH) * 2 - 1).requires_grad_() for _ in range(3)]
    probe = heads_of(torch.rand(1, TOKENS, WIDTH) - 0.5)
    step(inputs, probe, causal, now)
    times = []
    while len(times) < 2 or sum(map(sum, times)) < 2 * args.seconds:
        times.append(step(inputs, probe, causal, now))
    for direction, seconds in zip(("forward", "backward"), map(sorted, zip(*times))):
        print(json.dumps({
            "peer": f"PyTorch {torch.__version__}", "op": "attention", "direction": direction,
            "shape": f"{TOKENS} d{WIDTH} h{HEADS}" + (" causal" if causal else ""), "threads": args.threads,
            "ms": round(1e3 * seconds[len(seconds) // 2], 4), "best_ms": round(1e3 * seconds[0], 4),
        }), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    p.add_argument("--seconds", type=float, default=0.5, help="of each case and direction")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    for causal in (False, True):
        measure(causal, args)


if __name__ == "__main__":
    main()
