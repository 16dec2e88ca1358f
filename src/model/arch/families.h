#pragma once
// The families: how each makes a DecoderSpec of a file's keys, "<family>.*". One short file each.
// Pure, any thread. All: kBadFile, kUnsupported.

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/format/model_file.h"

namespace artery::model {

// "gemma3": Gemma 3, text only.
Result<DecoderSpec> gemma3_spec(const ModelFile& file);
// "gpt-oss": gpt-oss 20b and 120b.
Result<DecoderSpec> gpt_oss_spec(const ModelFile& file);
// "llama": Llama 1 to 3, SmolLM2, TinyStories, Mistral with its sliding window, Mixtral.
Result<DecoderSpec> llama_spec(const ModelFile& file);
// "phi3": Phi-3, Phi-3.5 and Phi-4 (dense).
Result<DecoderSpec> phi3_spec(const ModelFile& file);
// "qwen2": Qwen2, Qwen2.5 and their Coder forms (dense).
Result<DecoderSpec> qwen2_spec(const ModelFile& file);
// "qwen2moe": Qwen1.5-MoE and Qwen2-MoE.
Result<DecoderSpec> qwen2moe_spec(const ModelFile& file);
// "qwen3": Qwen3 (dense).
Result<DecoderSpec> qwen3_spec(const ModelFile& file);
// "qwen3moe": Qwen3 mixtures of experts.
Result<DecoderSpec> qwen3moe_spec(const ModelFile& file);

}  // namespace artery::model
