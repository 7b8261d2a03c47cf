#!/usr/bin/env python3
"""Turns a PyTorch checkpoint into a safetensors file that tp_load reads by name.

    tools/pth_to_safetensors.py model.pth model.safetensors

Needs Python with PyTorch; the safetensors format is written here. The state dict is the checkpoint itself
or what it holds as "model", "state_dict", "module", "net" or "model_state" (--key for another). A common
prefix "module." is removed. Half precision becomes float32. Buffers that tapegrad computes itself
(relative_position_index, attn_mask) are left out.
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
    """The names and tensors of a checkpoint, whatever it is wrapped in."""
    if key:
        return checkpoint[key]
    for name in KEYS:
        if isinstance(checkpoint.get(name), dict):
            return state_dict(checkpoint[name], None)
    return checkpoint


def tensors(state, keep):
    """(name, tensor) pairs to be written, in order."""
    prefix = "module." if all(name.startswith("module.") for name in state) else ""
    for name, value in state.items():
        name = name[len(prefix):]
        if not torch.is_tensor(value):
            print(f"{name}: is no tensor, left out", file=sys.stderr)
        elif not keep and name.rsplit(".", 1)[-1] in COMPUTED:
            continue
        else:
            yield name, value.float() if value.dtype == torch.float16 else value


def bytes_of(tensor):
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write(path, pairs):
    """Writes beside the file, syncs and renames."""
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
    p.add_argument("--key", help="where the state dict is in the checkpoint")
    p.add_argument("--all", action="store_true", help="keep buffers that tapegrad computes itself")
    p.add_argument("--unsafe", action="store_true",
                   help="allow pickled objects, which can run any code: only for files that you trust")
    a = p.parse_args()
    checkpoint = torch.load(a.checkpoint, map_location="cpu", weights_only=not a.unsafe)
    write(a.output, list(tensors(state_dict(checkpoint, a.key), a.all)))


if __name__ == "__main__":
    main()
