#include "cli/flags.h"

namespace artery::cli {

Flag model_flag() {
  return {
      .name = "model",
      .help = "a .gguf file, any part of a split one, or a model's folder",
      .value_name = "MODEL",
      .letter = 'm',
      .positional = true,
  };
}

Flag threads_flag() {
  return {
      .name = "threads",
      .kind = FlagKind::kInteger,
      .fallback = "0",
      .help = "compute threads; 0: as many as the CPU affinity and the cgroup quota allow",
      .value_name = "N",
      .letter = 't',
      .min = 0,
      .max = 1024,
  };
}

Flag isa_flag() {
  return {
      .name = "isa",
      .kind = FlagKind::kChoice,
      .fallback = "auto",
      .help = "instruction set of the kernels; changes speed, never a bit",
      .choices = "auto|avx512|avx2|scalar|ref",
  };
}

Flag numerics_flag() {
  return {
      .name = "numerics",
      .kind = FlagKind::kChoice,
      .fallback = "fast",
      .help = "reference: plain loops in double precision, slow, for checking",
      .choices = "fast|reference",
  };
}

Flag json_flag() {
  return {
      .name = "json",
      .kind = FlagKind::kSwitch,
      .fallback = "false",
      .help = "print JSON instead of a table",
      .in_config = false,
  };
}

Flag gpu_layers_flag() {
  return {
      .name = "gpu-layers",
      .kind = FlagKind::kInteger,
      .fallback = "0",
      .help = "accepted as -ngl 0 for llama.cpp users; this build has no GPU path",
      .value_name = "N",
      .in_config = false,
      .min = 0,
      .max = 0,
  };
}

Flag chat_template_flag() {
  return {
      .name = "chat-template",
      .help =
          "a Jinja file, or a built-in form: chatml, llama2, llama3, mistral, deepseek-v4, "
          "deepseek-v4.1; empty: the model's own",
      .value_name = "FILE",
  };
}

Flag max_model_len_flag() {
  return {
      .name = "max-model-len",
      .kind = FlagKind::kInteger,
      .fallback = "0",
      .help = "context length in tokens; 0: the model's own, or the largest that fits the memory",
      .value_name = "TOKENS",
      .letter = 'c',
      .min = 0,
      .max = 1e9,
  };
}

Flag max_num_seqs_flag() {
  return {
      .name = "max-num-seqs",
      .kind = FlagKind::kInteger,
      .fallback = "64",
      .help = "sequences that run at once (-np)",
      .value_name = "N",
      .min = 1,
      .max = 65536,
  };
}

Flag max_num_batched_tokens_flag() {
  return {
      .name = "max-num-batched-tokens",
      .kind = FlagKind::kInteger,
      .fallback = "512",
      .help = "most tokens of one step",
      .value_name = "N",
      .min = 1,
      .max = 65536,
  };
}

Flag kv_cache_memory_bytes_flag() {
  return {
      .name = "kv-cache-memory-bytes",
      .kind = FlagKind::kBytes,
      .fallback = "0",
      .help = "size of the KV pool; 0: four contexts, at most a quarter of the free memory",
      .value_name = "SIZE",
  };
}

Flag kv_cache_dtype_flag() {
  return {
      .name = "kv-cache-dtype",
      .kind = FlagKind::kChoice,
      .fallback = "auto",
      .help = "type of cached keys and values; auto: int16, or f64 with --numerics reference",
      .choices = "auto|int16v8|int16|f16|f32",
  };
}

}  // namespace artery::cli
