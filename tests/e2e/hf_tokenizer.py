"""A Hugging Face tokenizer folder made of a GGUF file's byte-level BPE, for clients that count tokens.

  PYTHON tests/e2e/hf_tokenizer.py MODEL.gguf FOLDER      needs `tokenizers` in that Python

SmolLM2's and GPT-2's manner of cutting words only.
"""

import json
import struct
import sys
from pathlib import Path

from gguf_file import ARRAY, STRING, GgufFile

CUTS = {"smollm": True, "gpt-2": False}  # name in the file: digits stand alone


def strings(raw):
    kind, element, count = struct.unpack_from("<IIQ", raw)
    assert kind == ARRAY and element == STRING, "not an array of strings"
    found, at = [], 16
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", raw, at)
        found.append(raw[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return found


def main():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    model, folder = sys.argv[1], Path(sys.argv[2])
    metadata = GgufFile.read(model, metadata_only=True).metadata
    cut = metadata["tokenizer.ggml.pre"][12:].decode()
    if cut not in CUTS:
        sys.exit(f"hf_tokenizer: {model}: words are cut as {cut}; this knows {', '.join(CUTS)}")
    tokens = strings(metadata["tokenizer.ggml.tokens"])
    types = struct.unpack(f"<{len(tokens)}i", metadata["tokenizer.ggml.token_type"][16:])
    merges = [tuple(merge.split(" ")) for merge in strings(metadata["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    steps = [pre_tokenizers.Digits(individual_digits=True)] if CUTS[cut] else []
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, types) if kind == 3])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (end,) = struct.unpack("<I", metadata["tokenizer.ggml.eos_token_id"][4:])
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tokens[end]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


main()
