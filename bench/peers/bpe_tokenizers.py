#!/usr/bin/env python3
"""Runs bench_bpe's cases with the package tokenizers, in one thread, and prints JSON lines.

    bpe_tokenizers.py FILE [--vocab DIR] [--size N] [--limit BYTES] [--runs N]

DIR has encoder.json and vocab.bpe, or vocab.json and merges.txt. The text is encoded line by line,
as the package is used, or (--whole) as one string. Seconds are processor time.
"""
import argparse
import json
import os
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402


def report(what, size, seconds, ids):
    print(json.dumps({"peer": f"tokenizers {tokenizers.__version__}", "bpe": what,
                      "mb": size / 1e6, "seconds": seconds, "mb_per_s": size / 1e6 / seconds,
                      "ids": ids}), flush=True)


def byte_level(model):
    t = Tokenizer(model)
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return t


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--vocab")
    p.add_argument("--size", type=int, default=0)
    p.add_argument("--limit", type=int, default=10**8)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--whole", action="store_true")
    args = p.parse_args()
    data = open(args.file, "rb").read(args.limit)
    text = data.decode("utf-8", "replace")
    parts = [text] if args.whole else text.splitlines(keepends=True)
    t = None
    if args.size:
        t = byte_level(models.BPE())
        specials = ["<s>", "<pad>", "</s>", "<unk>"]
        trainer = trainers.BpeTrainer(vocab_size=args.size - 1, min_frequency=2,
                                      show_progress=False, special_tokens=specials,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        begin = time.process_time()
        t.train_from_iterator([text], trainer)
        report("learn", len(data), time.process_time() - begin, t.get_vocab_size())
        if args.vocab is None:
            t.model.save("/tmp", "peer")
    if args.vocab:
        names = ("encoder.json", "vocab.bpe")
        if not os.path.exists(os.path.join(args.vocab, names[0])):
            names = ("vocab.json", "merges.txt")
        t = byte_level(models.BPE.from_file(*[os.path.join(args.vocab, n) for n in names]))
    encode = decode = 1e9
    for _ in range(args.runs):
        begin = time.process_time()
        ids = [t.encode(x, add_special_tokens=False).ids for x in parts]
        encode = min(encode, time.process_time() - begin)
        begin = time.process_time()
        for x in ids:
            t.decode(x)
        decode = min(decode, time.process_time() - begin)
    n = sum(len(x) for x in ids)
    report("encode", len(data), encode, n)
    report("decode", len(data), decode, n)


main()
