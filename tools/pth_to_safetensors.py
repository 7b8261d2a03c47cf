#!/usr/bin/env python3
"""Converts a PyTorch checkpoint to a safetensors file that tp_load reads by name.

    tools/pth_to_safetensors.py model.pth model.safetensors

Needs Python with PyTorch, but not the safetensors package. The state dict is the checkpoint itself or its
entry "model", "state_dict", "module", "net" or "model_state" (--key names another). A common prefix
"module." is removed. Half precision is converted to float32. Buffers that tapegrad computes itself
(relative_position_index, attn_mask) are skipped.
"""
import argparse
import json
import os
import struct
import sys

import torch

KEYS = ("model", "state_dict", "module", "net", "model_state")
COMPUTED = ("relative_position_index", "attn_mask")
NAMES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}


def state_dict(checkpoint, key):
    """The state dict of a checkpoint, unwrapped."""
    if key:
        return checkpoint[key]
    for name in KEYS:
        if isinstance(checkpoint.get(name), dict):
            return state_dict(checkpoint[name], None)
    return checkpoint


def tensors(state, keep):
    """Yields the (name, tensor) pairs to write, in order."""
    prefix = "module." if all(name.startswith("module.") for name in state) else ""
    for name, value in state.items():
        name = name[len(prefix):]
        if not torch.is_tensor(value):
            print(f"{name}: skipped, because it is not a tensor", file=sys.stderr)
        elif not keep and name.rsplit(".", 1)[-1] in COMPUTED:
            continue
        else:
            yield name, value.float() if value.dtype == torch.float16 else value


def bytes_of(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write(path, pairs):
    """Writes a temporary file, syncs it and renames it to path."""
    header, chunks, end = {}, [], 0
    for name, tensor in pairs:
        if tensor.dtype not in NAMES:
            sys.exit(f"{name}: tensors of {tensor.dtype} are not supported")
        raw = bytes_of(tensor) if tensor.numel() else b""
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [end, end + len(raw)]}
        chunks.append(raw)
        end += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for raw in chunks:
            f.write(raw)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".part", path)
    print(f"{path}: {len(header)} tensors, {end} bytes")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("output")
    p.add_argument("--key", help="entry of the checkpoint that holds the state dict")
    p.add_argument("--all", action="store_true", help="keep buffers that tapegrad computes itself")
    p.add_argument("--unsafe", action="store_true",
                   help="allow pickled objects, which can run any code; use it only for files you trust")
    a = p.parse_args()
    checkpoint = torch.load(a.checkpoint, map_location="cpu", weights_only=not a.unsafe)
    write(a.output, list(tensors(state_dict(checkpoint, a.key), a.all)))


if __name__ == "__main__":
    main()
