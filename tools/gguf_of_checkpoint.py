"""A small checkpoint as GGUF, under the names and in the layouts llama.cpp's converter writes.

Used by make_family_goldens.py to compare both forms of one model; for real checkpoints use
llama.cpp's convert_hf_to_gguf.py, whose conventions these are (version of November 2026).
"""
import math
import re

import gguf
import numpy
import torch

ARCHITECTURE = dict(
    llama="llama", mistral="llama", mixtral="llama", qwen3="qwen3", qwen3_moe="qwen3moe",
    qwen2_moe="qwen2moe", gemma3_text="gemma3", gpt_oss="gpt-oss", phi3="phi3",
)
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks": "attn_sinks", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def permute(weight, heads):
    """From halves to adjacent pairs."""
    rows = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, rows, -1).transpose(1, 2).reshape(weight.shape)


def mxfp4_rows(blocks, scales):
    """GGUF's blocks: a scale, then nibbles of values j and j + 16 in one byte."""
    low, high = blocks & 15, blocks >> 4
    codes = torch.stack([low, high], -1).reshape(*blocks.shape[:-1], 32)
    nibbles = codes[..., :16] | codes[..., 16:] << 4
    rows = torch.cat([scales[..., None], nibbles], -1)
    return rows.reshape(*rows.shape[:-2], -1).numpy()


class Writer:
    def __init__(self, path, config):
        self.config = config
        self.kind = config["model_type"]
        self.arch = ARCHITECTURE[self.kind]
        self.out = gguf.GGUFWriter(path, self.arch)

    def tensor(self, name, values):
        if values.dtype == torch.bfloat16 and values.dim() > 1:
            raw = values.contiguous().view(torch.uint16).numpy().view(numpy.uint8)
            self.out.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        elif values.dtype == torch.float16 and values.dim() > 1:
            self.out.add_tensor(name, values.numpy())
        else:
            self.out.add_tensor(name, values.double().numpy().astype(numpy.float32))

    def key(self, name, value):
        if value is None:
            return
        name = f"{self.arch}.{name}"
        if isinstance(value, float):
            self.out.add_float32(name, value)
        elif isinstance(value, str):
            self.out.add_string(name, value)
        else:
            self.out.add_uint32(name, value)

    def keys(self):
        c = self.config
        get = c.get
        self.key("block_count", c["num_hidden_layers"])
        self.key("context_length", c["max_position_embeddings"])
        self.key("embedding_length", c["hidden_size"])
        self.key("feed_forward_length", c["intermediate_size"])
        self.key("attention.head_count", c["num_attention_heads"])
        self.key("attention.head_count_kv", c["num_key_value_heads"])
        self.key("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
        self.key("attention.key_length", get("head_dim"))
        self.key("attention.value_length", get("head_dim"))
        self.key("rope.freq_base", c["rope_theta"])
        if self.kind == "phi3":
            self.key("attention.sliding_window", get("sliding_window") or 0)
        else:
            self.key("attention.sliding_window", get("sliding_window"))
        self.key("expert_count", get("num_experts", get("num_local_experts")))
        if "num_experts_per_tok" in c:
            self.key("expert_used_count", c["num_experts_per_tok"])
        inner = c["intermediate_size"] if self.kind == "gpt_oss" else get("moe_intermediate_size")
        self.key("expert_feed_forward_length", inner)
        self.key("expert_shared_feed_forward_length", get("shared_expert_intermediate_size"))
        self.rope(get("rope_scaling"))

    def rope(self, scaling):
        c = self.config
        if self.kind == "phi3":
            original = c["original_max_position_embeddings"]
            self.key("rope.dimension_count", c["hidden_size"] // c["num_attention_heads"])
            self.key("rope.scaling.original_context_length", original)
        if scaling is None:
            return
        kind = scaling["rope_type"]
        if kind in ("linear", "yarn"):
            self.key("rope.scaling.type", kind)
            self.key("rope.scaling.factor", scaling["factor"])
        if kind == "yarn":
            original = scaling["original_max_position_embeddings"]
            self.key("rope.scaling.original_context_length", original)
            self.key("rope.scaling.yarn_beta_fast", scaling["beta_fast"])
            self.key("rope.scaling.yarn_beta_slow", scaling["beta_slow"])
        if kind == "llama3":
            self.tensor("rope_freqs.weight", self.llama3(scaling))
        if kind == "longrope":
            stretch = c["max_position_embeddings"] / original
            self.key("rope.scaling.attn_factor",
                     math.sqrt(1 + math.log(stretch) / math.log(original)))
            for length in ("long", "short"):
                factors = torch.tensor(scaling[f"{length}_factor"], dtype=torch.float64)
                self.tensor(f"rope_factors_{length}.weight", factors)

    def llama3(self, scaling):
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        original = scaling["original_max_position_embeddings"]
        dims = self.config["head_dim"]
        factors = []
        for i in range(0, dims, 2):
            wavelength = 2 * math.pi * self.config["rope_theta"] ** (i / dims)
            if wavelength < original / high:
                factors.append(1.0)
            elif wavelength > original / low:
                factors.append(scaling["factor"])
            else:
                smooth = (original / wavelength - low) / (high - low)
                factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
        return torch.tensor(factors, dtype=torch.float64)

    def vocabulary(self, tokens):
        out = self.out
        special = 256
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("gpt-2")
        out.add_token_list(tokens)
        out.add_token_types([1] * special + [3] * (len(tokens) - special))
        out.add_token_merges(["! !"])  # readers want one; its token does not exist
        out.add_bos_token_id(self.config["bos_token_id"])
        out.add_eos_token_id(self.config["eos_token_id"])
        out.add_add_bos_token(False)

    def tensors(self, tensors):
        experts = {}
        for key, values in tensors.items():
            stem, part = re.fullmatch(r"(.*?)(?:\.(weight|bias))?", key).groups()
            if stem in TOP:
                self.placed(f"{TOP[stem]}.weight", values)
                continue
            layer, inner = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem).groups()
            if "experts." in inner:
                experts.setdefault(layer, {})[inner.split("experts.")[1]] = values
                continue
            name = NAMES[inner]
            if inner == "post_attention_layernorm" and self.kind in ("gemma3_text", "gpt_oss"):
                name = "post_attention_norm"
            if self.arch == "llama" and name in ("attn_q", "attn_k"):
                kind = "num_attention_heads" if name == "attn_q" else "num_key_value_heads"
                values = permute(values, self.config[kind])
            self.placed(f"blk.{layer}.{name}.{part or 'weight'}", values)
        for layer, parts in experts.items():
            self.experts(f"blk.{layer}.", parts)

    def placed(self, name, values):
        if self.kind == "gemma3_text" and "norm" in name:
            values = values.double() + 1
        if "ffn_gate_inp" in name:
            values = values.double()
        if "ffn_gate_inp_shexp" in name:
            values = values.reshape(-1)
        self.tensor(name, values)

    def experts(self, block, parts):
        if self.kind == "gpt_oss":
            return self.gpt_oss_experts(block, parts)
        words = dict(w1="gate", w2="down", w3="up", gate_proj="gate", down_proj="down", up_proj="up")
        count = self.config.get("num_experts", self.config.get("num_local_experts"))
        for word, name in words.items():
            if f"0.{word}" in parts:
                stack = torch.stack([parts[f"{i}.{word}"] for i in range(count)])
                self.tensor(f"{block}ffn_{name}_exps.weight", stack)

    def gpt_oss_experts(self, block, parts):
        both = parts["gate_up_proj_bias"]
        self.tensor(f"{block}ffn_gate_exps.bias", both[:, ::2].double())
        self.tensor(f"{block}ffn_up_exps.bias", both[:, 1::2].double())
        self.tensor(f"{block}ffn_down_exps.bias", parts["down_proj_bias"].double())
        if "gate_up_proj" in parts:
            both = parts["gate_up_proj"].transpose(1, 2)
            self.tensor(f"{block}ffn_gate_exps.weight", both[:, ::2])
            self.tensor(f"{block}ffn_up_exps.weight", both[:, 1::2])
            self.tensor(f"{block}ffn_down_exps.weight", parts["down_proj"].transpose(1, 2))
            return
        both, scales = parts["gate_up_proj_blocks"], parts["gate_up_proj_scales"]
        down = mxfp4_rows(parts["down_proj_blocks"], parts["down_proj_scales"])
        for name, rows in (("gate", mxfp4_rows(both[:, ::2], scales[:, ::2])),
                           ("up", mxfp4_rows(both[:, 1::2], scales[:, 1::2])), ("down", down)):
            self.out.add_tensor(f"{block}ffn_{name}_exps.weight", rows,
                                raw_dtype=gguf.GGMLQuantizationType.MXFP4)


def write(path, config, tensors, tokens):
    writer = Writer(path, config)
    writer.keys()
    writer.vocabulary(tokens)
    writer.tensors(tensors)
    writer.out.write_header_to_file()
    writer.out.write_kv_data_to_file()
    writer.out.write_tensors_to_file()
    writer.out.close()
