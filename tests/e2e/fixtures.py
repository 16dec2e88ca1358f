"""The model files of the field reports, made once under build/e2e-models.

M1 is stories260K; M2 a random Llama shape on the Qwen2 vocabulary with ChatML, about 40 MB in F16.
"""

import json
import os
import random
import statistics
import struct
import subprocess
import sys
import unittest
from pathlib import Path

import gguf_file
from gguf_file import GgufFile

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
MODELS = Path(os.environ.get("ARTERY_MODELS") or ROOT / "build" / "models")
MADE = ROOT / "build" / "e2e-models"
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"

M2_CONTEXT = 32768
M2_DIM, M2_FFN, M2_LAYERS, M2_HEADS, M2_KV_HEADS, M2_VOCAB = 64, 128, 2, 4, 2, 151936
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def need(path, how):
    if not path.exists():
        raise unittest.SkipTest(f"no {path.name}: {how}")
    return path


def make(name, build):
    """Path of MADE/name; build(path) writes it unless it is there. Safe beside other processes."""
    path = MADE / name
    if not path.exists():
        MADE.mkdir(parents=True, exist_ok=True)
        temporary = MADE / f"{name}.{os.getpid()}"
        build(temporary)
        temporary.rename(path)
    return path


def m1():
    script = need(SHARED / "models" / "bin_to_gguf.py", "the shared test data is absent")

    def build(path):
        parts = [script.parent / "stories260K.bin", script.parent / "tok512.bin"]
        subprocess.run([sys.executable, script, *parts, path], check=True)

    return make("stories260K.gguf", build)


def m1_with(name, **metadata):
    """M1 with other metadata; a key's dots are written as double underscores."""

    def build(path):
        file = GgufFile.read(m1())
        file.metadata.update((key.replace("__", "."), raw) for key, raw in metadata.items())
        file.write(path)

    return make(name, build)


def m1_q8_0():
    """M1's weights in blocks of 32 int8 with a scale, where a row is whole blocks."""

    def quantized(raw):
        values = struct.unpack(f"<{len(raw) // 4}f", raw)
        out = bytearray()
        for at in range(0, len(values), 32):
            block = values[at : at + 32]
            scale = struct.pack("<e", max(map(abs, block)) / 127)
            (step,) = struct.unpack("<e", scale)
            whole = (max(-127, min(127, round(x / step))) if step else 0 for x in block)
            out += scale + struct.pack("<32b", *whole)
        return bytes(out)

    def build(path):
        file = GgufFile.read(m1())
        for i, (name, dims, kind, raw) in enumerate(file.tensors):
            if kind == gguf_file.F32 and len(dims) == 2 and dims[0] % 32 == 0:
                count = dims[0] * dims[1]
                file.tensors[i] = (name, dims, gguf_file.Q8_0, quantized(raw[: 4 * count]))
        file.write(path)

    return make("m1-q8_0.gguf", build)


def _normal_f16(rng, count, deviation):
    """F16 values, nearly normal: high bytes are a normal's quantiles, low bytes are free."""
    normal = statistics.NormalDist(0, deviation)
    table = bytes(
        struct.pack("<e", normal.inv_cdf((i + 0.5) / 256))[1] for i in range(256)
    )
    raw = bytearray(2 * count)
    raw[0::2] = rng.randbytes(count)
    raw[1::2] = rng.randbytes(count).translate(table)
    return bytes(raw)


def _m2_tensors():
    rng = random.Random(20260726)
    head_dim = M2_DIM // M2_HEADS

    def matrix(name, inputs, outputs, deviation):
        raw = _normal_f16(rng, inputs * outputs, deviation)
        return (name, (inputs, outputs), gguf_file.F16, raw)

    def ones(name):
        return (name, (M2_DIM,), gguf_file.F32, struct.pack("<f", 1.0) * M2_DIM)

    tensors = [matrix("token_embd.weight", M2_DIM, M2_VOCAB, 1.0)]
    for i in range(M2_LAYERS):
        block = f"blk.{i}."
        tensors.append(ones(block + "attn_norm.weight"))
        tensors.append(matrix(block + "attn_q.weight", M2_DIM, M2_DIM, 0.125))
        tensors.append(matrix(block + "attn_k.weight", M2_DIM, M2_KV_HEADS * head_dim, 0.125))
        tensors.append(matrix(block + "attn_v.weight", M2_DIM, M2_KV_HEADS * head_dim, 0.125))
        tensors.append(matrix(block + "attn_output.weight", M2_DIM, M2_DIM, 0.125))
        tensors.append(ones(block + "ffn_norm.weight"))
        tensors.append(matrix(block + "ffn_gate.weight", M2_DIM, M2_FFN, 0.125))
        tensors.append(matrix(block + "ffn_up.weight", M2_DIM, M2_FFN, 0.125))
        tensors.append(matrix(block + "ffn_down.weight", M2_FFN, M2_DIM, 0.09))
    tensors.append(ones("output_norm.weight"))
    # A final row of length 8 after the norm: logits spread by about 1.
    tensors.append(matrix("output.weight", M2_DIM, M2_VOCAB, 0.125))
    return tensors


def m2():
    vocabulary = need(SHARED / "models" / "ggml-vocab-qwen2.gguf", "the shared test data is absent")

    def build(path):
        file = GgufFile()
        u32, f32, text = gguf_file.u32, gguf_file.f32, gguf_file.text
        file.metadata = {
            "general.architecture": text("llama"),
            "general.name": text("m2"),
            "llama.context_length": u32(M2_CONTEXT),
            "llama.embedding_length": u32(M2_DIM),
            "llama.block_count": u32(M2_LAYERS),
            "llama.feed_forward_length": u32(M2_FFN),
            "llama.attention.head_count": u32(M2_HEADS),
            "llama.attention.head_count_kv": u32(M2_KV_HEADS),
            "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
            "llama.rope.dimension_count": u32(M2_DIM // M2_HEADS),
            "llama.rope.freq_base": f32(10000.0),
            "llama.vocab_size": u32(M2_VOCAB),
        }
        source = GgufFile.read(vocabulary, metadata_only=True).metadata
        file.metadata.update((k, v) for k, v in source.items() if k.startswith("tokenizer."))
        file.metadata["tokenizer.chat_template"] = text(CHATML)
        file.tensors = _m2_tensors()
        file.write(path)

    return make("m2-v1.gguf", build)


def smollm2():
    return need(MODELS / SMOLLM2, "scripts/fetch-model smollm2")


def field_reports():
    """The field reports by id, or None where the shared test data is absent."""
    path = SHARED / "golden" / "reports" / "reports.json"
    if not path.exists():
        return None
    return {r["id"]: r for r in json.loads(path.read_bytes())["reports"]}


def need_reports(reports):
    if reports is None:
        raise unittest.SkipTest("no field reports: the shared test data is absent")
