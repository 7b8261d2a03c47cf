"""Reads and writes safetensors files with numpy."""
import json
import struct

import numpy as np

CODES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
NAMES = {np.dtype(v): k for k, v in CODES.items()}


def write(path, arrays, meta):
    """arrays {name: array}, meta {name: text}; ordering by element size aligns all tensors."""
    header, at, parts = {"__metadata__": meta}, 0, []
    for name, a in sorted(arrays.items(), key=lambda item: -np.asarray(item[1]).dtype.itemsize):
        a = np.asarray(a)
        a = a.astype(np.uint8) if a.dtype == bool else a
        data = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": NAMES[a.dtype], "shape": list(a.shape),
                        "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for data in parts:
            f.write(data)


def read(path):
    """({name: array}, {name: text})"""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    meta = header.pop("__metadata__", {})
    arrays = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        arrays[name] = np.frombuffer(data[begin:end], CODES[t["dtype"]]).reshape(t["shape"])
    return arrays, meta
