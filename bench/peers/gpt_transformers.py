#!/usr/bin/env python3
"""Training steps of the package transformers' GPT-2, for comparison with bench_models --model gpt2:
forward, cross entropy, backward and AdamW (fused) on random tokens, without dropout. Prints a JSON
line.

    python3 bench/peers/gpt_transformers.py --bench --tokens 1024 [--compile] [--dtype bf16]
"""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import training_step


def bench(args):
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        attn_implementation="sdpa")
    model = GPT2LMHeadModel(config).to(args.device).train()
    optimiser = training_step.adamw(model)
    net = training_step.compiled(model, args)

    def draw():
        return (torch.randint(config.vocab_size, (args.batch, args.tokens + 1),
                              device=args.device),)

    def loss(ids):
        z = net(input_ids=ids[:, :-1], use_cache=False).logits
        return F.cross_entropy(z.float().flatten(0, 1), ids[:, 1:].flatten())

    seconds = training_step.times(args, optimiser, draw, loss)
    median = training_step.median(seconds)
    training_step.report(args, ", transformers", model="gpt2", batch=args.batch,
                         tokens=args.tokens, dtype=args.dtype, seconds=round(median, 4),
                         best=round(seconds[0], 4),
                         tokens_per_s=round(args.batch * args.tokens / median, 1),
                         peak_mb=round(training_step.peak_mb(args)))


def check(folder):
    raise SystemExit(f"{folder}: there are no cases; tests/compare/compare_published.py compares "
                     "the model")


if __name__ == "__main__":
    p = training_step.parser(__doc__, batch=1)
    p.add_argument("--tokens", type=int, default=1024)
    training_step.run(p, check, bench)
