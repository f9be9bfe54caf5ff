"""Safetensors files with numpy alone."""
import json
import struct

import numpy as np

TYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32}


def load(path):
    """name -> array; bf16 comes back as float32."""
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        if t["dtype"] == "BF16":
            half = np.frombuffer(data[begin:end], np.uint16)
            flat = (half.astype(np.uint32) << 16).view(np.float32)
        else:
            flat = np.frombuffer(data[begin:end], TYPES[t["dtype"]])
        out[name] = flat.reshape(t["shape"])
    return out


def save(path, tensors):
    names = {np.dtype(v): k for k, v in TYPES.items()}
    head, at = {}, 0
    for name, a in tensors.items():
        head[name] = {"dtype": names[a.dtype], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())
