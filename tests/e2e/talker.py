"""A model file that says one text: each token leads to the next, whatever stood before. With a second
text it says that one where the conversation holds a tool's result.

A Llama of one layer that adds nothing: attention and feed-forward end in zeros, so the last hidden
row is the token's own embedding, and the output row of each token is the sum of its predecessors'
embeddings. The text begins behind a line break, where the template leaves off; the second one behind
a tab, with which the template opens the turns after a result.
"""

import hashlib
import random
import struct
from pathlib import Path

import fixtures
import gguf_file
from gguf_file import GgufFile

DIM, HEADS, FFN, CONTEXT = 128, 2, 64, 4096
NORMAL, CONTROL = 1, 3
# The markup in it is what the server chooses its parsers by.
TEMPLATE = (
    "{% set turn = namespace(end='\\n') %}"
    "{% if tools %}{{ '<|im_start|>system\\nTools: ' + tools | tojson + ' Use <tool_call>"
    '{"name": ..., "arguments": ...}</tool_call><|im_end|>\\n\' }}{% endif %}'
    "{% for m in messages %}{% if m.role == 'tool' %}{% set turn.end = RESULT_END %}{% endif %}"
    "{{ '<|im_start|>' + m.role + (turn.end if m.role == 'assistant' else '\\n') }}"
    "{% if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n{\"name\": ' +"
    " c.function.name | tojson + ', \"arguments\": ' + c.function.arguments | tojson +"
    " '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant' + turn.end }}{% endif %}"
)


def visible(raw):
    """GPT-2's visible form of bytes (the table of its published vocabulary)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    return "".join(table[byte] for byte in raw)


def pieces_of(raw, known):
    """Cuts into short pieces, no two alike and none in `known`."""
    pieces, at = [], 0
    while at < len(raw):
        size = 2
        while at + size < len(raw) and raw[at : at + size] in known:
            size += 1
        piece = raw[at : at + size]
        if piece in known:  # the end came first
            pieces[-1] += piece
        else:
            pieces.append(piece)
        known.add(pieces[-1])
        at += size
    return pieces


def array(kind, items):
    return struct.pack("<IIQ", gguf_file.ARRAY, kind, len(items)) + b"".join(items)


def talker(name, said, then=None):
    """The path of a model that says `said`, whose last byte must not end a character early, and
    after a tool's result `then` (without: the same)."""
    says = [("\n", said)] if then is None else [("\n", said), ("\t", then)]
    template = TEMPLATE.replace("RESULT_END", "'\\n'" if then is None else "'\\t'")

    def build(path):
        texts = [bytes([byte]) for byte in range(256)] + [b"he"]
        known = set(texts)
        scripts = [(ord(opening), pieces_of(one.encode(), known)) for opening, one in says]
        start = len(texts) + sum(len(script) for _, script in scripts)
        end = start + 1
        follower = {}
        for opening, script in scripts:
            tokens = [opening, *range(len(texts), len(texts) + len(script)), end]
            follower |= dict(zip(tokens, tokens[1:]))
            texts += script
        tokens = [visible(text) for text in texts] + ["<|im_start|>", "<|im_end|>"]
        u32, f32, text = gguf_file.u32, gguf_file.f32, gguf_file.text
        file = GgufFile()
        file.metadata = {
            "general.architecture": text("llama"),
            "general.name": text(name),
            "llama.context_length": u32(CONTEXT),
            "llama.embedding_length": u32(DIM),
            "llama.block_count": u32(1),
            "llama.feed_forward_length": u32(FFN),
            "llama.attention.head_count": u32(HEADS),
            "llama.attention.head_count_kv": u32(HEADS),
            "llama.attention.layer_norm_rms_epsilon": f32(1e-5),
            "llama.rope.dimension_count": u32(DIM // HEADS),
            "llama.rope.freq_base": f32(10000.0),
            "llama.vocab_size": u32(len(tokens)),
            "tokenizer.ggml.model": text("gpt2"),
            "tokenizer.ggml.pre": text("gpt-2"),
            "tokenizer.ggml.tokens": array(8, [gguf_file.string(token) for token in tokens]),
            "tokenizer.ggml.token_type": array(
                5, [struct.pack("<i", CONTROL if i >= start else NORMAL) for i in range(len(tokens))]
            ),
            "tokenizer.ggml.merges": array(8, [gguf_file.string("h e")]),
            "tokenizer.ggml.eos_token_id": u32(end),
            "tokenizer.ggml.bos_token_id": u32(end),
            "tokenizer.ggml.add_bos_token": gguf_file.boolean(False),
            "tokenizer.chat_template": text(template),
        }
        file.tensors = _tensors(len(tokens), follower)
        file.write(path)

    made_of = Path(__file__).read_bytes() + repr((says, CONTEXT)).encode()
    return fixtures.make(f"{name}-{hashlib.sha256(made_of).hexdigest()[:8]}.gguf", build)


def _tensors(vocabulary, follower):
    rng = random.Random(20261130)
    rows = [[rng.gauss(0, 1) for _ in range(DIM)] for _ in range(vocabulary)]
    zero = [0.0] * DIM
    leaders = {}
    for before, after in follower.items():
        leaders.setdefault(after, []).append(rows[before])
    output = [[sum(row) for row in zip(zero, *leaders.get(one, []))] for one in range(vocabulary)]

    def matrix(name, inputs, outputs, values=None):
        raw = bytes(4 * inputs * outputs)
        if values:
            raw = b"".join(struct.pack(f"<{inputs}f", *row) for row in values)
        return (name, (inputs, outputs), gguf_file.F32, raw)

    def ones(name):
        return (name, (DIM,), gguf_file.F32, struct.pack("<f", 1.0) * DIM)

    block = "blk.0."
    return [
        matrix("token_embd.weight", DIM, vocabulary, rows),
        ones(block + "attn_norm.weight"),
        *(matrix(f"{block}attn_{one}.weight", DIM, DIM) for one in ("q", "k", "v", "output")),
        ones(block + "ffn_norm.weight"),
        matrix(block + "ffn_gate.weight", DIM, FFN),
        matrix(block + "ffn_up.weight", DIM, FFN),
        matrix(block + "ffn_down.weight", FFN, DIM),
        ones("output_norm.weight"),
        matrix("output.weight", DIM, vocabulary, output),
    ]
