#include "model/format/hf_family.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "model/format/text.h"

namespace artery::model {
namespace {

using D = HfDim;
using L = HfLayout;

template <std::size_t... N>
constexpr auto join(const std::array<HfLine, N>&... parts) {
  std::array<HfLine, (N + ...)> out{};
  std::size_t at = 0;
  auto put = [&](const auto& part) {
    for (const HfLine& line : part) out[at++] = line;
  };
  (put(parts), ...);
  return out;
}

constexpr std::array kNorms = {
    HfLine{"input_layernorm", "attn_norm", D::kHidden, D::kNone, L::kNorm},
    HfLine{"post_attention_layernorm", "ffn_norm", D::kHidden, D::kNone, L::kNorm},
};

constexpr std::array kAttention = {
    HfLine{"self_attn.q_proj", "attn_q", D::kQ, D::kHidden, L::kQ},
    HfLine{"self_attn.k_proj", "attn_k", D::kKv, D::kHidden, L::kK},
    HfLine{"self_attn.v_proj", "attn_v", D::kKv, D::kHidden},
    HfLine{"self_attn.o_proj", "attn_output", D::kHidden, D::kQ},
};

constexpr std::array kHeadNorms = {
    HfLine{"self_attn.q_norm", "attn_q_norm", D::kHeadDim, D::kNone, L::kNorm},
    HfLine{"self_attn.k_norm", "attn_k_norm", D::kHeadDim, D::kNone, L::kNorm},
};

constexpr std::array kMlp = {
    HfLine{"mlp.gate_proj", "ffn_gate", D::kFeed, D::kHidden},
    HfLine{"mlp.up_proj", "ffn_up", D::kFeed, D::kHidden},
    HfLine{"mlp.down_proj", "ffn_down", D::kHidden, D::kFeed},
};

constexpr std::array kMixtralExperts = {
    HfLine{"block_sparse_moe.gate", "ffn_gate_inp", D::kExperts, D::kHidden},
    HfLine{
        "block_sparse_moe.experts.*.w1", "ffn_gate_exps", D::kExpertFeed, D::kHidden, L::kExperts
    },
    HfLine{"block_sparse_moe.experts.*.w3", "ffn_up_exps", D::kExpertFeed, D::kHidden, L::kExperts},
    HfLine{
        "block_sparse_moe.experts.*.w2", "ffn_down_exps", D::kHidden, D::kExpertFeed, L::kExperts
    },
};

constexpr std::array kQwenExperts = {
    HfLine{"mlp.gate", "ffn_gate_inp", D::kExperts, D::kHidden},
    HfLine{
        "mlp.experts.*.gate_proj",
        "ffn_gate_exps",
        D::kExpertFeed,
        D::kHidden,
        L::kExperts,
        "mlp.experts.gate_up_proj",
        0,
        2
    },
    HfLine{
        "mlp.experts.*.up_proj",
        "ffn_up_exps",
        D::kExpertFeed,
        D::kHidden,
        L::kExperts,
        "mlp.experts.gate_up_proj",
        1,
        2
    },
    HfLine{
        "mlp.experts.*.down_proj",
        "ffn_down_exps",
        D::kHidden,
        D::kExpertFeed,
        L::kExperts,
        "mlp.experts.down_proj"
    },
};

constexpr std::array kSharedExpert = {
    HfLine{"mlp.shared_expert_gate", "ffn_gate_inp_shexp", D::kOne, D::kHidden, L::kRowVector},
    HfLine{"mlp.shared_expert.gate_proj", "ffn_gate_shexp", D::kSharedFeed, D::kHidden},
    HfLine{"mlp.shared_expert.up_proj", "ffn_up_shexp", D::kSharedFeed, D::kHidden},
    HfLine{"mlp.shared_expert.down_proj", "ffn_down_shexp", D::kHidden, D::kSharedFeed},
};

constexpr std::array kGemmaNorms = {
    HfLine{"input_layernorm", "attn_norm", D::kHidden, D::kNone, L::kNorm},
    HfLine{"post_attention_layernorm", "post_attention_norm", D::kHidden, D::kNone, L::kNorm},
    HfLine{"pre_feedforward_layernorm", "ffn_norm", D::kHidden, D::kNone, L::kNorm},
    HfLine{"post_feedforward_layernorm", "post_ffw_norm", D::kHidden, D::kNone, L::kNorm},
};

constexpr std::array kGptOssOnly = {
    HfLine{"input_layernorm", "attn_norm", D::kHidden, D::kNone, L::kNorm},
    HfLine{"post_attention_layernorm", "post_attention_norm", D::kHidden, D::kNone, L::kNorm},
    HfLine{"self_attn.sinks", "attn_sinks", D::kHeads, D::kNone, L::kBare},
    HfLine{"mlp.router", "ffn_gate_inp", D::kExperts, D::kHidden},
    HfLine{"mlp.experts.gate_up_proj", "ffn_gate_exps", D::kExpertFeed, D::kHidden, L::kOssGate},
    HfLine{"mlp.experts.gate_up_proj", "ffn_up_exps", D::kExpertFeed, D::kHidden, L::kOssUp},
    HfLine{"mlp.experts.down_proj", "ffn_down_exps", D::kHidden, D::kExpertFeed, L::kOssDown},
};

constexpr std::array kPhi3Only = {
    HfLine{"self_attn.qkv_proj", "attn_qkv", D::kQkv, D::kHidden},
    HfLine{"self_attn.o_proj", "attn_output", D::kHidden, D::kQ},
    HfLine{"mlp.gate_up_proj", "ffn_up", D::kTwoFeed, D::kHidden},
    HfLine{"mlp.down_proj", "ffn_down", D::kHidden, D::kFeed},
};

constexpr auto kLlama = join(kNorms, kAttention, kMlp);
constexpr auto kQwen3 = join(kNorms, kAttention, kHeadNorms, kMlp);
constexpr auto kMixtral = join(kNorms, kAttention, kMixtralExperts);
constexpr auto kQwen2Moe = join(kNorms, kAttention, kQwenExperts, kSharedExpert);
constexpr auto kQwen3Moe = join(kNorms, kAttention, kHeadNorms, kQwenExperts);
constexpr auto kGemma3 = join(kGemmaNorms, kAttention, kHeadNorms, kMlp);
constexpr auto kGptOss = join(kAttention, kGptOssOnly);
constexpr auto kPhi3 = join(kNorms, kPhi3Only);

constexpr HfFamily gemma3(std::string_view model_type) {
  return {
      .model_type = model_type,
      .architecture = "gemma3",
      .layer = kGemma3,
      .norm_adds_one = true,
      .tied = true,
      .activation = "gelu_pytorch_tanh",
      .rope_theta = 1e6,
  };
}

constexpr std::array kFamilies = {
    HfFamily{
        .model_type = "llama", .architecture = "llama", .layer = kLlama, .rotates_pairs = true
    },
    HfFamily{
        .model_type = "mistral", .architecture = "llama", .layer = kLlama, .rotates_pairs = true
    },
    HfFamily{
        .model_type = "mixtral", .architecture = "llama", .layer = kMixtral, .rotates_pairs = true
    },
    HfFamily{.model_type = "qwen2", .architecture = "qwen2", .layer = kLlama},
    HfFamily{.model_type = "qwen2_moe", .architecture = "qwen2moe", .layer = kQwen2Moe},
    HfFamily{.model_type = "qwen3", .architecture = "qwen3", .layer = kQwen3},
    HfFamily{.model_type = "qwen3_moe", .architecture = "qwen3moe", .layer = kQwen3Moe},
    gemma3("gemma3_text"),
    gemma3("gemma3"),
    HfFamily{
        .model_type = "gpt_oss", .architecture = "gpt-oss", .layer = kGptOss, .rope_theta = 150000
    },
    HfFamily{.model_type = "phi3", .architecture = "phi3", .layer = kPhi3},
};

bool is_gemma3(const HfFamily& family) { return family.architecture == "gemma3"; }

// What transformers' Gemma3TextConfig takes where a text_config leaves a number out.
struct Default {
  std::string_view key;
  std::int64_t value;
};
constexpr std::array kGemma3Defaults = {
    Default{"num_hidden_layers", 26},
    Default{"hidden_size", 2304},
    Default{"intermediate_size", 9216},
    Default{"num_attention_heads", 8},
    Default{"num_key_value_heads", 4},
    Default{"head_dim", 256},
    Default{"vocab_size", 262208},
    Default{"max_position_embeddings", 131072},
};

Result<std::int64_t> size(const HfConfig& config, const HfFamily& family, std::string_view key) {
  if (is_gemma3(family) && !config.has(key)) {
    for (const Default& line : kGemma3Defaults)
      if (line.key == key) return line.value;
  }
  return config.count(key);
}

// The first of the keys that is there: the families name the same number differently.
Result<std::int64_t> first_count(
    const HfConfig& config, std::initializer_list<std::string_view> keys
) {
  for (const std::string_view key : keys)
    if (config.has(key)) return config.count(key);
  return config.fail(Code::kBadFile, "{} is missing", *keys.begin());
}

bool has_experts(const HfFamily& family) {
  for (const HfLine& line : family.layer)
    if (line.rows == HfDim::kExperts) return true;
  return false;
}

Result<> read_experts(const HfConfig& config, const HfFamily& family, HfSizes& out) {
  if (!has_experts(family)) return {};
  out.experts = TRY(first_count(config, {"num_local_experts", "num_experts"}));
  out.experts_used = TRY(first_count(config, {"num_experts_per_tok", "experts_per_token"}));
  out.expert_feed = TRY(first_count(config, {"moe_intermediate_size", "intermediate_size"}));
  out.shared_feed = TRY(config.count_or("shared_expert_intermediate_size", 0));
  if (out.experts > 65536 || out.experts_used > out.experts) {
    return config.fail(
        Code::kBadFile, "{} experts a token of {} experts cannot be", out.experts_used, out.experts
    );
  }
  return {};
}

}  // namespace

std::int64_t HfSizes::of(HfDim dim) const {
  switch (dim) {
    case D::kHidden:
      return hidden;
    case D::kVocab:
      return vocab;
    case D::kQ:
      return heads * head_dim;
    case D::kKv:
      return kv_heads * head_dim;
    case D::kQkv:
      return (heads + 2 * kv_heads) * head_dim;
    case D::kHeadDim:
      return head_dim;
    case D::kHeads:
      return heads;
    case D::kFeed:
      return feed;
    case D::kTwoFeed:
      return 2 * feed;
    case D::kExperts:
      return experts;
    case D::kExpertFeed:
      return expert_feed;
    case D::kSharedFeed:
      return shared_feed;
    default:
      return 1;
  }
}

std::string HfSizes::text(HfDim dim) const {
  switch (dim) {
    case D::kHidden:
      return fmt::format("hidden_size {}", hidden);
    case D::kVocab:
      return fmt::format("vocab_size {}", vocab);
    case D::kQ:
      return fmt::format("num_attention_heads {} x head_dim {}", heads, head_dim);
    case D::kKv:
      return fmt::format("num_key_value_heads {} x head_dim {}", kv_heads, head_dim);
    case D::kQkv:
      return fmt::format(
          "(num_attention_heads {} + 2 x num_key_value_heads {}) x head_dim {}",
          heads,
          kv_heads,
          head_dim
      );
    case D::kHeadDim:
      return fmt::format("head_dim {}", head_dim);
    case D::kHeads:
      return fmt::format("num_attention_heads {}", heads);
    case D::kFeed:
      return fmt::format("intermediate_size {}", feed);
    case D::kTwoFeed:
      return fmt::format("2 x intermediate_size {}", feed);
    case D::kExperts:
      return fmt::format("{} experts", experts);
    case D::kExpertFeed:
      return fmt::format("an expert's intermediate_size {}", expert_feed);
    case D::kSharedFeed:
      return fmt::format("shared_expert_intermediate_size {}", shared_feed);
    default:
      return "1";
  }
}

Result<const HfFamily*> find_hf_family(const HfConfig& config) {
  const std::string type = TRY(config.text_or("model_type", ""));
  if (type.empty()) return config.fail(Code::kBadFile, "model_type is missing");
  std::vector<std::string_view> known;
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == type) return &family;
    known.push_back(family.model_type);
  }
  return config.fail(
      Code::kUnsupported,
      "unknown model_type '{}' (supported: {})",
      printable(type),
      fmt::join(known, ", ")
  );
}

Result<HfSizes> read_hf_sizes(const HfConfig& config, const HfFamily& family) {
  HfSizes out;
  out.layers = TRY(size(config, family, "num_hidden_layers"));
  out.hidden = TRY(size(config, family, "hidden_size"));
  out.vocab = TRY(size(config, family, "vocab_size"));
  out.context = TRY(size(config, family, "max_position_embeddings"));
  out.feed = TRY(size(config, family, "intermediate_size"));
  out.heads = TRY(size(config, family, "num_attention_heads"));
  const bool has_kv = is_gemma3(family) || config.has("num_key_value_heads");
  out.kv_heads = has_kv ? TRY(size(config, family, "num_key_value_heads")) : out.heads;
  if (out.heads % out.kv_heads != 0) {
    return config.fail(
        Code::kBadFile,
        "num_attention_heads {} is not a multiple of num_key_value_heads {}",
        out.heads,
        out.kv_heads
    );
  }
  const bool has_dim = is_gemma3(family) || config.has("head_dim");
  if (!has_dim && out.hidden % out.heads != 0) {
    return config.fail(
        Code::kBadFile,
        "hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim",
        out.hidden,
        out.heads
    );
  }
  out.head_dim = has_dim ? TRY(size(config, family, "head_dim")) : out.hidden / out.heads;
  if (out.head_dim % 2 != 0) return config.fail(Code::kBadFile, "head_dim {} is odd", out.head_dim);
  TRY(read_experts(config, family, out));
  return out;
}

}  // namespace artery::model
