#!/usr/bin/env python3
"""Masked batches of the package transformers, for comparison with bench_texts:
DataCollatorForLanguageModeling on random ids below RoBERTa's 50265, as tensors, in one thread.
Prints a JSON line; seconds are processor time.

    python3 bench/peers/mlm_transformers.py VOCAB [LENGTH [BATCH]]

VOCAB is a folder with vocab.json and merges.txt.
"""
import json
import sys
import time

import torch
from transformers import DataCollatorForLanguageModeling, RobertaTokenizerFast

torch.set_num_threads(1)
folder, length, batch = sys.argv[1], *map(int, (sys.argv[2:] + ["512", "32"][len(sys.argv) - 2:]))
tokenizer = RobertaTokenizerFast.from_pretrained(folder)
collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
rows = [{"input_ids": torch.randint(4, len(tokenizer) - 1, (length,)),
         "special_tokens_mask": torch.zeros(length, dtype=torch.int64)} for _ in range(batch)]
best, count = 1e9, 50
for _ in range(3):
    begin = time.process_time()
    for _ in range(count):
        collate([dict(row) for row in rows])
    best = min(best, time.process_time() - begin)
ids = count * batch * length
print(json.dumps({"texts": "masked batches", "seconds": round(best, 4), "ids": ids,
                  "m_ids_per_s": round(ids / 1e6 / best, 2)}))
