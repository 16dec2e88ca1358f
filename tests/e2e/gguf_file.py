"""Reads and writes GGUF v3 containers, as far as test fixtures need it.

Format: the GGUF specification of ggml (docs/gguf.md). Metadata values are kept as raw bytes, so
that a vocabulary of 150,000 tokens is copied without being understood.
"""

import struct
from pathlib import Path

ALIGNMENT = 32
STRING = 8
ARRAY = 9
SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
F32, F16, Q8_0 = 0, 1, 8


def string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def u32(value):
    return struct.pack("<II", 4, value)


def f32(value):
    return struct.pack("<If", 6, value)


def boolean(value):
    return struct.pack("<IB", 7, value)


def text(value):
    return struct.pack("<I", STRING) + string(value)


def _skip_string(data, at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def _skip_value(data, at, kind):
    if kind == STRING:
        return _skip_string(data, at)
    if kind != ARRAY:
        return at + SCALAR_BYTES[kind]
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind != STRING:
        return at + SCALAR_BYTES[kind] * count
    for _ in range(count):
        at = _skip_string(data, at)
    return at


class GgufFile:
    """metadata: key -> raw value with its type; tensors: (name, dims, type, bytes)."""

    def __init__(self):
        self.metadata = {}
        self.tensors = []

    @classmethod
    def read(cls, path, metadata_only=False):
        data = Path(path).read_bytes()
        magic, version, tensor_count, pair_count = struct.unpack_from("<4sIQQ", data)
        assert magic == b"GGUF" and version == 3, (path, magic, version)
        at, self = 24, cls()
        for _ in range(pair_count):
            end = _skip_string(data, at)
            key, begin = data[at + 8 : end].decode(), end
            at = _skip_value(data, begin + 4, struct.unpack_from("<I", data, begin)[0])
            self.metadata[key] = data[begin:at]
        if not metadata_only:
            self._read_tensors(data, at, tensor_count)
        return self

    def _read_tensors(self, data, at, count):
        infos = []
        for _ in range(count):
            end = _skip_string(data, at)
            name = data[at + 8 : end].decode()
            (rank,) = struct.unpack_from("<I", data, end)
            dims = struct.unpack_from(f"<{rank}Q", data, end + 4)
            kind, offset = struct.unpack_from("<IQ", data, end + 4 + 8 * rank)
            at = end + 16 + 8 * rank
            infos.append((offset, name, dims, kind))
        base = -(-at // ALIGNMENT) * ALIGNMENT
        offsets = sorted(info[0] for info in infos) + [len(data) - base]
        for offset, name, dims, kind in infos:
            following = next(o for o in offsets if o > offset)
            self.tensors.append((name, dims, kind, data[base + offset : base + following]))

    def write(self, path):
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.metadata))
        head += b"".join(string(key) + raw for key, raw in self.metadata.items())
        offset = 0
        for name, dims, kind, raw in self.tensors:
            head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
            offset += -(-len(raw) // ALIGNMENT) * ALIGNMENT
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % ALIGNMENT))
            for _, _, _, raw in self.tensors:
                out.write(raw + bytes(-len(raw) % ALIGNMENT))
