"""RoBERTa and Longformer of the package transformers, for comparison in benchmarks.

    roberta_transformers.py --bench NAME [options]   time a training step and print one JSON line

A step is forward with dropout 0.1, cross entropy, backward and fused AdamW, of a base-size model
with random weights on random texts without padding. NAME-mlm predicts 15 % of the tokens; the
package computes the logits of all. RoBERTa's attention is scaled_dot_product_attention;
Longformer's first token is global in the classifier. tests/compare/compare_published.py compares
the logits of these modules with ours.
"""
import torch
import transformers

import training_step

MODELS = {
    "roberta-base": ("RobertaForSequenceClassification", 514),
    "roberta-base-mlm": ("RobertaForMaskedLM", 514),
    "longformer-base": ("LongformerForSequenceClassification", 4098),
    "longformer-base-mlm": ("LongformerForMaskedLM", 4098),
}
VOCAB, TARGETS = 50265, 0.15


def build(name):
    kind, rows = MODELS[name]
    common = dict(vocab_size=VOCAB, max_position_embeddings=rows, type_vocab_size=1,
                  layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    if not name.endswith("mlm"):  # else the first step sets it, and a compiled model recompiles
        common["problem_type"] = "single_label_classification"
    if "longformer" in name:
        config = transformers.LongformerConfig(attention_window=[512] * 12, **common)
    else:
        config = transformers.RobertaConfig(attn_implementation="sdpa", **common)
    return getattr(transformers, kind)(config).train()


def bench(args):
    model = build(args.bench).to(args.device)
    optimiser = training_step.adamw(model)
    run = training_step.compiled(model, args)
    extra = {}
    if args.bench == "longformer-base":
        at = torch.zeros(args.batch, args.tokens, dtype=torch.long, device=args.device)
        at[:, 0] = 1
        extra["global_attention_mask"] = at

    def draw():
        x = torch.randint(4, VOCAB, (args.batch, args.tokens), device=args.device)
        if not args.bench.endswith("mlm"):
            return x, torch.randint(2, (args.batch,), device=args.device)
        hidden = torch.rand(x.shape, device=args.device) < TARGETS
        return torch.where(hidden, VOCAB - 1, x), torch.where(hidden, x, -100)

    mask = torch.ones(args.batch, args.tokens, dtype=torch.long, device=args.device)
    loss = lambda x, y: run(input_ids=x, attention_mask=mask, labels=y, **extra).loss
    seconds = training_step.median(training_step.times(args, optimiser, draw, loss, args.warm_up))
    training_step.report(
        args, f", transformers {transformers.__version__}", model=args.bench, dtype=args.dtype,
        tokens=args.tokens, batch=args.batch, threads=args.threads, seconds=seconds,
        tokens_per_s=args.batch * args.tokens / seconds, peak_mb=training_step.peak_mb(args),
        libraries_mb=args.libraries_mb)


def main():
    p = training_step.parser(__doc__, 2, list(MODELS))
    p.add_argument("--tokens", type=int, default=2048)
    p.add_argument("--warm-up", type=int)
    p.set_defaults(libraries_mb=training_step.resident_mb())
    transformers.utils.logging.set_verbosity_error()
    training_step.run(p, None, bench)


if __name__ == "__main__":
    main()
