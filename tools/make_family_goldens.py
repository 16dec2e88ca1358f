#!/usr/bin/env python3
"""Makes tests/golden/families: a tiny random checkpoint of every model family and its logits.

    python3 -m venv build/goldens-venv
    build/goldens-venv/bin/pip install torch transformers safetensors gguf
    build/goldens-venv/bin/python tools/make_family_goldens.py [NAME ...] [--gguf FOLDER]

Each NAME/ is a checkpoint as released (config.json, model.safetensors, tokenizer.json) with
    golden.json   the token ids, the positions and how they were made
    logits.npy    float32 [positions, vocabulary], computed in float64 by Hugging Face transformers
Weights are seeded by the name and rounded to the type they are stored in before anything is
computed. transformers turns to float32 in places (norms, softmax, RoPE); here these are float64 too.
--gguf also writes NAME.gguf there, under the names llama.cpp's converter uses; not committed.
The same versions of torch, numpy and transformers give the same files; golden.json names them.
"""
import argparse
import json
import pathlib
import zlib

import numpy
import torch

import transformers
from safetensors.torch import save_file

import gguf_of_checkpoint

FLOAT32 = torch.float32  # before only_float64()
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "families"
TOKENS = 100
POSITIONS = [0, 5, 15, 16, 31, 63, 64, 99]
MXFP4_VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def byte_tokens():
    """GPT-2's visible alphabet for the 256 bytes, in the order of the bytes."""
    visible = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    names, spare = {}, 256
    for byte in range(256):
        names[byte] = chr(byte if byte in visible else spare)
        spare += byte not in visible
    return [names[byte] for byte in range(256)]


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
VOCAB = 256 + len(SPECIAL)


def tokenizer():
    tokens = byte_tokens() + SPECIAL
    special = [
        dict(id=256 + i, content=text, single_word=False, lstrip=False, rstrip=False,
             normalized=False, special=True)
        for i, text in enumerate(SPECIAL)
    ]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None,
        pre_tokenizer=byte_level, post_processor=None, decoder=byte_level,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                   end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                   vocab={token: i for i, token in enumerate(tokens)}, merges=[]),
    )


SHARED = dict(
    vocab_size=VOCAB, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=258,
    pad_token_id=259, attention_dropout=0.0, use_cache=False,
)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=32)
LONG = dict(rope_type="longrope", short_factor=[1, 1.25, 1.5, 1.75], long_factor=[1, 2.5, 4, 9])


def moe(experts, used, inner, **more):
    return dict(num_experts=experts, num_experts_per_tok=used, moe_intermediate_size=inner, **more)


# name: model type, stored type, settings; "rope": rope_scaling, with rope_theta
FAMILIES = {
    "llama3": ("llama", "F32", dict(
        num_hidden_layers=2, intermediate_size=40, rope_theta=500000.0, rope_scaling=LLAMA3,
        tie_word_embeddings=True)),
    "mistral": ("mistral", "BF16", dict(
        num_hidden_layers=3, intermediate_size=48, rope_theta=10000.0, sliding_window=24)),
    "mixtral": ("mixtral", "BF16", dict(
        num_hidden_layers=2, intermediate_size=24, rope_theta=1e6, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=None)),
    "qwen3": ("qwen3", "F16", dict(
        num_hidden_layers=3, intermediate_size=48, rope_theta=1e6, tie_word_embeddings=True)),
    "qwen3_moe": ("qwen3_moe", "BF16", dict(
        num_hidden_layers=2, intermediate_size=64, rope_theta=1e6, decoder_sparse_step=1,
        mlp_only_layers=[], norm_topk_prob=True, **moe(6, 2, 16))),
    "qwen2_moe": ("qwen2_moe", "BF16", dict(
        num_hidden_layers=2, intermediate_size=64, rope_theta=1e6, decoder_sparse_step=1,
        mlp_only_layers=[], norm_topk_prob=False, head_dim=None, hidden_size=48,
        shared_expert_intermediate_size=24, **moe(5, 3, 16))),
    "gemma3": ("gemma3_text", "BF16", dict(
        num_hidden_layers=7, intermediate_size=40, hidden_size=24, rope_theta=1e6,
        rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0),
        sliding_window=16, query_pre_attn_scalar=16, num_key_value_heads=1, head_dim=16,
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)),
    "gpt_oss": ("gpt_oss", "BF16", dict(
        num_hidden_layers=4, intermediate_size=16, rope_theta=150000.0, rope_scaling=YARN,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=16, attention_bias=True)),
    "gpt_oss_mxfp4": ("gpt_oss", "BF16", dict(
        num_hidden_layers=3, intermediate_size=32, rope_theta=150000.0, rope_scaling=YARN,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=16, attention_bias=True,
        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]))),
    "phi3": ("phi3", "BF16", dict(
        num_hidden_layers=3, intermediate_size=40, head_dim=None, rope_theta=10000.0,
        original_max_position_embeddings=256, sliding_window=24)),
    "phi3_longrope": ("phi3", "BF16", dict(
        num_hidden_layers=2, intermediate_size=40, head_dim=None, rope_theta=10000.0,
        original_max_position_embeddings=48, sliding_window=None, rope_scaling=LONG)),
}


def checkpoint_config(name):
    model_type, _, settings = FAMILIES[name]
    config = {**SHARED, **settings, "model_type": model_type}
    return {key: value for key, value in config.items() if value is not None or key == "sliding_window"}


def hf_config(name):
    config = checkpoint_config(name)
    config.pop("quantization_config", None)  # the experts are unpacked here
    rope = dict(config.pop("rope_scaling", {"rope_type": "default"}))
    rope["rope_theta"] = config.pop("rope_theta")
    if config["model_type"] == "gemma3_text":
        local = config.pop("rope_local_base_freq")
        kinds = {"full_attention": rope,
                 "sliding_attention": {"rope_type": "default", "rope_theta": local}}
        config["rope_parameters"] = kinds
    else:
        if rope["rope_type"] == "longrope":
            rope["original_max_position_embeddings"] = config["original_max_position_embeddings"]
        config["rope_parameters"] = rope
    made = transformers.AutoConfig.for_model(**config)
    made._attn_implementation = "eager"
    made._experts_implementation = "eager"
    return made


def random_weights(model, generator, gemma):
    """Sizes that keep a row's size through a layer; norms around 1 (Gemma stores them less 1)."""
    for name, weight in sorted(model.state_dict().items()):
        values = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        if "norm" in name:
            values = values * 0.1 + (0 if gemma else 1)
        elif name.endswith("embed_tokens.weight"):
            pass
        elif name.endswith("sinks") or name.endswith("router.bias"):
            pass
        elif name.endswith("bias"):
            values = values * 0.1
        else:
            # gpt-oss stores its experts transposed.
            transposed = "gpt" in type(model).__name__.lower() and "experts" in name
            fan_in = weight.shape[-2] if transposed else weight.shape[-1]
            wide = any(part in name for part in ("q_proj", "k_proj", "gate", "lm_head", "router"))
            values = values * ((2 if wide else 1) / fan_in**0.5)
        yield name, weight, values


def round_to(values, stored):
    kind = {"F32": FLOAT32, "F16": torch.float16, "BF16": torch.bfloat16}[stored]
    return values.to(kind)


def mxfp4(values):
    """values [experts, rows, cols] as blocks [..., cols / 32, 16] and scales [..., cols / 32]."""
    parts = values.reshape(*values.shape[:-1], -1, 32)
    top = parts.abs().amax(-1).clamp(min=2.0**-100)
    exponent = torch.floor(torch.log2(top)) - 2
    table = torch.tensor(MXFP4_VALUES, dtype=torch.float64)
    scaled = parts / torch.exp2(exponent)[..., None]
    codes = (scaled[..., None] - table).abs().argmin(-1).to(torch.uint8)
    exact = table[codes.long()] * torch.exp2(exponent)[..., None]
    blocks = codes[..., 0::2] | codes[..., 1::2] << 4
    return blocks, (exponent + 127).to(torch.uint8), exact.reshape(values.shape)


def fill(model, name):
    """Sets the model's weights and returns the tensors of the file."""
    _, stored, settings = FAMILIES[name]
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    tied = settings.get("tie_word_embeddings", False)
    packed = "quantization_config" in settings
    tensors = {}
    for key, weight, values in random_weights(model, generator, "gemma" in name):
        if key == "lm_head.weight" and tied:
            continue
        if packed and key.endswith(("gate_up_proj", "down_proj")):
            blocks, scales, exact = mxfp4(values.transpose(1, 2))
            tensors[key + "_blocks"], tensors[key + "_scales"] = blocks, scales
            weight.copy_(exact.transpose(1, 2))
            continue
        tensors[key] = round_to(values, stored)
        weight.copy_(tensors[key].double())
    model.tie_weights()
    return released_names(tensors, FAMILIES[name][0])


def released_names(tensors, model_type):
    """transformers 5 holds a mixture's experts as one tensor; released checkpoints have one each."""
    if model_type not in ("mixtral", "qwen2_moe", "qwen3_moe"):
        return tensors
    out = {}
    for key, values in tensors.items():
        if key.endswith("experts.gate_up_proj"):
            base = key.removesuffix("gate_up_proj")
            for i, both in enumerate(values):
                gate, up = both.chunk(2)
                out[f"{base}{i}.gate_proj.weight"] = gate.clone()
                out[f"{base}{i}.up_proj.weight"] = up.clone()
        elif key.endswith("experts.down_proj"):
            base = key.removesuffix("down_proj")
            for i, down in enumerate(values):
                out[f"{base}{i}.down_proj.weight"] = down.clone()
        else:
            out[key] = values
    if model_type != "mixtral":
        return out
    words = {".mlp.": ".block_sparse_moe.", "gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    renamed = {}
    for key, values in out.items():
        for old, new in words.items():
            key = key.replace(old, new)
        renamed[key] = values
    return renamed


def compute(model, ids):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    assert logits.dtype == torch.float64, logits.dtype
    return logits[torch.tensor([p for p in POSITIONS if p < len(ids)])]


def only_float64():
    """transformers asks for float32 by name; everything it computes here is float64."""
    torch.float32 = torch.float64
    torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)


def write(name, gguf_folder):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    config = checkpoint_config(name)
    made = hf_config(name)
    model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float64).double().eval()
    config["architectures"] = [type(model).__name__]
    stored = FAMILIES[name][1]
    config["torch_dtype"] = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[stored]
    tensors = fill(model, name)
    generator = numpy.random.default_rng(zlib.crc32(name.encode()))
    ids = generator.integers(0, 256, TOKENS).tolist()
    runs = [ids]
    if "longrope" in name:  # the short factors: a text within the original context
        runs.append(ids[:40])
    logits = torch.cat([compute(model, run) for run in runs]).numpy()
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    numpy.save(folder / "logits.npy", logits.astype(numpy.float32))
    golden = dict(
        runs=[dict(ids=run, positions=[p for p in POSITIONS if p < len(run)]) for run in runs],
        made_with=f"transformers {transformers.__version__}, torch {torch.__version__}",
    )
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    text = json.dumps(tokenizer(), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token=SPECIAL[0], eos_token=SPECIAL[2],
        pad_token=SPECIAL[3])) + "\n")
    if gguf_folder is not None:
        gguf_of_checkpoint.write(gguf_folder / f"{name}.gguf", config, tensors,
                                 byte_tokens() + SPECIAL)
    spread = logits.max() - logits.min()
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {len(tensors)} tensors, {size} bytes, logits within {spread:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    parser.add_argument("--gguf", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.gguf is not None:
        arguments.gguf.mkdir(parents=True, exist_ok=True)
    only_float64()
    for name in arguments.names or FAMILIES:
        write(name, arguments.gguf)


if __name__ == "__main__":
    main()
