#include "model/format/hf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/format/text.h"

namespace artery::model {
namespace {

class Writer {
 public:
  Writer(const HfConfig& config, const HfFamily& family, const HfSizes& sizes, HfMetadata& out)
      : config_(config), family_(family), sizes_(sizes), out_(out) {}

  Result<> run(std::string_view name) {
    MetadataStore& store = out_.store;
    store.set_string("general.architecture", family_.architecture);
    store.set_string("general.name", name);
    write_sizes();
    const double eps = family_.architecture == "gemma3" ? 1e-6 : 0;
    store.set_float(
        full("attention.layer_norm_rms_epsilon"),
        eps == 0 ? TRY(config_.number("rms_norm_eps")) : TRY(config_.number_or("rms_norm_eps", eps))
    );
    TRY(check_activation());
    TRY(check_quantization());
    TRY(write_scale());
    TRY(write_window());
    TRY(write_experts());
    return read_hf_rope(config_, family_, sizes_, out_);
  }

 private:
  std::string full(std::string_view key) const {
    return fmt::format("{}.{}", family_.architecture, key);
  }
  void set(std::string_view key, std::int64_t value) { out_.store.set_unsigned(full(key), value); }
  bool is(std::string_view architecture) const { return family_.architecture == architecture; }

  void write_sizes() {
    set("block_count", sizes_.layers);
    set("context_length", sizes_.context);
    set("embedding_length", sizes_.hidden);
    set("feed_forward_length", sizes_.feed);
    set("vocab_size", sizes_.vocab);
    set("attention.head_count", sizes_.heads);
    set("attention.head_count_kv", sizes_.kv_heads);
    set("attention.key_length", sizes_.head_dim);
    set("attention.value_length", sizes_.head_dim);
  }

  Result<> check_activation() const {
    const char* key = config_.has("hidden_activation") ? "hidden_activation" : "hidden_act";
    const std::string name = TRY(config_.text_or(key, family_.activation));
    if (name == family_.activation || (family_.activation == "silu" && name == "swish"))
      return check_feed_forward();
    return config_.fail(
        Code::kUnsupported,
        "{} is '{}': {} models with another activation than {} are not supported",
        key,
        printable(name),
        family_.model_type,
        family_.activation
    );
  }

  Result<> check_feed_forward() const {
    if (TRY(config_.flag_or("mlp_bias", false)))
      return config_.fail(Code::kUnsupported, "mlp_bias is true: this is not supported");
    if (!is("gpt-oss")) return {};
    constexpr double kLimit = 7;  // of gpt-oss' gated unit, tensor/backend.h
    const double limit = TRY(config_.number_or("swiglu_limit", kLimit));
    if (limit == kLimit) return {};
    return config_.fail(
        Code::kUnsupported,
        "swiglu_limit is {}: another one than {} is not supported",
        limit,
        kLimit
    );
  }

  Result<> check_quantization() const {
    const JsonValue* quantization = config_.find("quantization_config");
    if (quantization == nullptr) return {};
    const JsonValue* method = quantization->find("quant_method");
    const std::string name =
        method != nullptr && method->text() != nullptr ? *method->text() : "(without quant_method)";
    constexpr std::array<std::string_view, 3> kKnown = {"fp8", "mxfp4", "fbgemm_fp8"};
    if (std::ranges::find(kKnown, name) != kKnown.end()) return {};
    if (name == "compressed-tensors" && is_float8(*quantization)) return {};
    const JsonValue* algorithm = quantization->find("quant_algo");
    if (name == "modelopt" && algorithm != nullptr && algorithm->text() != nullptr &&
        *algorithm->text() == "FP8")
      return {};
    return config_.fail(
        Code::kUnsupported,
        "quantization_config.quant_method is '{}': this quantization is not supported (read are "
        "BF16, F16, F32, FP8 E4M3 and MXFP4); use the unquantized checkpoint or a GGUF of the "
        "model",
        printable(name)
    );
  }

  // Every group of compressed-tensors' weights is 8 bits of float.
  static bool is_float8(const JsonValue& quantization) {
    const JsonValue* groups = quantization.find("config_groups");
    if (groups == nullptr || groups->object() == nullptr || groups->object()->empty()) return false;
    return std::ranges::all_of(*groups->object(), [](const JsonMember& group) {
      const JsonValue* weights = group.value.find("weights");
      if (weights == nullptr) return false;
      const JsonValue* bits = weights->find("num_bits");
      const JsonValue* type = weights->find("type");
      return bits != nullptr && bits->integer() != nullptr && *bits->integer() == 8 &&
             type != nullptr && type->text() != nullptr && *type->text() == "float";
    });
  }

  Result<> write_scale() {
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (!config_.has(key)) continue;
      const double cap = TRY(config_.number(key));
      if (cap != 0) out_.store.set_float(full(key), cap);
    }
    if (!is("gemma3")) return {};
    const double scalar = TRY(config_.number_or("query_pre_attn_scalar", 256));
    if (!(scalar > 0))
      return config_.fail(Code::kBadFile, "query_pre_attn_scalar is {}, not above 0", scalar);
    out_.store.set_float(full("attention.scale"), 1 / std::sqrt(scalar));
    return {};
  }

  Result<> write_window() {
    // Qwen2 and Qwen3 configs name a window that use_sliding_window turns off.
    const bool qwen = family_.architecture.starts_with("qwen");
    const bool on = TRY(config_.flag_or("use_sliding_window", !qwen));
    const std::int64_t absent = is("gemma3") ? 4096 : 0;
    const std::int64_t window =
        on ? TRY(config_.count_or("sliding_window", absent)) : std::int64_t{0};
    if (window == 0) return {};
    std::vector<bool> windowed = TRY(layer_types());
    if (qwen && windowed.empty()) {
      const std::int64_t from = TRY(config_.count_or("max_window_layers", sizes_.layers));
      for (std::int64_t i = 0; i < sizes_.layers; ++i) windowed.push_back(i >= from);
    }
    if (!windowed.empty() && std::ranges::find(windowed, true) == windowed.end()) return {};
    set("attention.sliding_window", window);
    if (!windowed.empty()) out_.store.set_bools(full("attention.sliding_window_pattern"), windowed);
    return {};
  }

  // Which layers have the window, where the config says it; empty: all alike.
  Result<std::vector<bool>> layer_types() const {
    std::vector<bool> out;
    const JsonValue* types = config_.find("layer_types");
    if (types == nullptr) {
      const char* key = config_.has("_sliding_window_pattern") ? "_sliding_window_pattern"
                                                               : "sliding_window_pattern";
      const std::int64_t every = TRY(config_.count_or(
          key,
          is("gemma3")    ? 6
          : is("gpt-oss") ? 2
                          : 1
      ));
      if (every > 1)
        for (std::int64_t i = 1; i <= sizes_.layers; ++i) out.push_back(i % every != 0);
      return out;
    }
    if (types->array() == nullptr || std::ssize(*types->array()) != sizes_.layers) {
      return config_.fail(
          Code::kBadFile,
          "layer_types is {} of {} items, expected an array of num_hidden_layers {}",
          types->kind(),
          types->array() != nullptr ? types->array()->size() : 0,
          sizes_.layers
      );
    }
    for (const JsonValue& item : *types->array()) {
      const std::string text = item.text() != nullptr ? *item.text() : std::string(item.kind());
      if (text != "sliding_attention" && text != "full_attention") {
        return config_.fail(
            Code::kUnsupported,
            "layer_types has '{}' (known: sliding_attention, full_attention)",
            printable(text)
        );
      }
      out.push_back(text == "sliding_attention");
    }
    return out;
  }

  Result<> write_experts() {
    if (sizes_.experts == 0) return {};
    set("expert_count", sizes_.experts);
    set("expert_used_count", sizes_.experts_used);
    set("expert_feed_forward_length", sizes_.expert_feed);
    if (sizes_.shared_feed != 0) set("expert_shared_feed_forward_length", sizes_.shared_feed);
    if (family_.architecture.starts_with("qwen"))
      out_.store.set_bool(
          full("expert_weights_norm"), TRY(config_.flag_or("norm_topk_prob", false))
      );
    const JsonValue* dense = config_.find("mlp_only_layers");
    const bool some_dense =
        dense != nullptr && dense->array() != nullptr && !dense->array()->empty();
    if (some_dense || TRY(config_.count_or("decoder_sparse_step", 1)) != 1) {
      return config_.fail(
          Code::kUnsupported,
          "mlp_only_layers or decoder_sparse_step give some layers no experts: not supported"
      );
    }
    return {};
  }

  const HfConfig& config_;
  const HfFamily& family_;
  const HfSizes& sizes_;
  HfMetadata& out_;
};

}  // namespace

void MetadataStore::add(std::string_view key, GgufType type, decltype(GgufValue::value) value) {
  keys_.push_back({keep(std::string(key)), {type, std::move(value)}});
}

void MetadataStore::set_unsigned(std::string_view key, std::int64_t value) {
  add(key, GgufType::kUint64, static_cast<std::uint64_t>(value));
}
void MetadataStore::set_float(std::string_view key, double value) {
  add(key, GgufType::kFloat64, value);
}
void MetadataStore::set_bool(std::string_view key, bool value) { add(key, GgufType::kBool, value); }
void MetadataStore::set_string(std::string_view key, std::string_view value) {
  add(key, GgufType::kString, keep(std::string(value)));
}
void MetadataStore::set_bools(std::string_view key, const std::vector<bool>& values) {
  std::string raw;
  for (const bool value : values) raw += value ? '\1' : '\0';
  GgufArray array{GgufType::kBool, values.size(), {}, {}, {}};
  array.raw = std::as_bytes(std::span(keep(std::move(raw))));
  add(key, GgufType::kArray, std::move(array));
}

Result<HfMetadata> read_hf_metadata(
    const HfConfig& config, const HfFamily& family, const HfSizes& sizes, std::string_view name
) {
  HfMetadata out;
  TRY(Writer(config, family, sizes, out).run(name));
  return out;
}

}  // namespace artery::model
