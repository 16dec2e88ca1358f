// RoPE of config.json: rope_theta with rope_scaling, or rope_parameters (transformers 5), which may
// have one entry for each kind of layer. Formulas: transformers' modeling_rope_utils.py, in
// float64.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/format/hf_metadata.h"
#include "model/format/text.h"
#include "tensor/math.h"

namespace artery::model {
namespace {

constexpr double kTwoPi = 6.283185307179586;

class RopeReader {
 public:
  RopeReader(const HfConfig& config, const HfFamily& family, const HfSizes& sizes, HfMetadata& out)
      : config_(config), family_(family), sizes_(sizes), out_(out) {}

  Result<> run() {
    find_entry();
    theta_ = TRY(config_.number_or("rope_theta", family_.rope_theta));
    if (entry_ != nullptr)
      theta_ = TRY(config_.number_in_or(*entry_, where_, "rope_theta", theta_));
    out_.store.set_float(full("rope.freq_base"), theta_);
    TRY(dimensions());
    TRY(window_base());
    if (entry_ == nullptr) return {};
    const std::string type = TRY(scaling_type());
    if (type == "default") return {};
    if (type == "linear") return linear();
    if (type == "yarn") return yarn();
    if (type == "llama3") return llama3();
    if (type == "longrope" || type == "su") return longrope();
    return config_.fail(
        Code::kUnsupported,
        "{}.rope_type '{}' is not supported (known: default, linear, yarn, llama3, longrope)",
        where_,
        printable(type)
    );
  }

 private:
  std::string full(std::string_view key) const {
    return fmt::format("{}.{}", family_.architecture, key);
  }
  Result<double> number(std::string_view key) const {
    return config_.number_in(*entry_, where_, key);
  }
  Result<double> number_or(std::string_view key, double absent) const {
    return config_.number_in_or(*entry_, where_, key, absent);
  }

  void find_entry() {
    where_ = config_.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    entry_ = config_.find(where_);
    if (entry_ == nullptr) return;
    if (const JsonValue* full_layers = entry_->find("full_attention")) {
      window_entry_ = entry_->find("sliding_attention");
      entry_ = full_layers;
      where_ += ".full_attention";
    }
  }

  Result<std::string> scaling_type() const {
    for (const char* key : {"rope_type", "type"}) {
      const JsonValue* value = entry_->find(key);
      if (value != nullptr && value->text() != nullptr) return *value->text();
    }
    return config_.fail(Code::kBadFile, "{} has no rope_type", where_);
  }

  Result<> dimensions() {
    double part = TRY(config_.number_or("partial_rotary_factor", 1));
    if (entry_ != nullptr) part = TRY(number_or("partial_rotary_factor", part));
    dims_ = static_cast<std::int64_t>(part * static_cast<double>(sizes_.head_dim));
    if (!(part > 0 && part <= 1) || dims_ < 2 || dims_ % 2 != 0) {
      return config_.fail(
          Code::kBadFile,
          "partial_rotary_factor {} of head_dim {} is no even number of dimensions",
          part,
          sizes_.head_dim
      );
    }
    out_.store.set_unsigned(full("rope.dimension_count"), dims_);
    return {};
  }

  // Layers with a window have a base of their own in Gemma 3.
  Result<> window_base() {
    if (family_.architecture != "gemma3") return {};
    double base = TRY(config_.number_or("rope_local_base_freq", 10000));
    if (window_entry_ != nullptr) {
      base = TRY(config_.number_in_or(
          *window_entry_, "rope_parameters.sliding_attention", "rope_theta", base
      ));
    }
    out_.store.set_float(full("rope.freq_base_swa"), base);
    return {};
  }

  Result<double> factor() const {
    const double value = TRY(number("factor"));
    if (value >= 1) return value;
    return config_.fail(Code::kBadFile, "{}.factor is {}, expected 1 or more", where_, value);
  }

  Result<> linear() {
    out_.store.set_string(full("rope.scaling.type"), "linear");
    out_.store.set_float(full("rope.scaling.factor"), TRY(factor()));
    return {};
  }

  // The positions the model was first trained for.
  Result<double> original_context() const {
    const auto at_top =
        static_cast<double>(TRY(config_.count_or("original_max_position_embeddings", 0)));
    const double value = TRY(number_or("original_max_position_embeddings", at_top));
    if (value >= 1 && value <= static_cast<double>(HfConfig::kCountMax)) return value;
    return config_.fail(
        Code::kBadFile, "{}.original_max_position_embeddings is missing or impossible", where_
    );
  }

  static double yarn_scale(double scale, double weight) {
    return scale <= 1 ? 1 : 0.1 * weight * tensor::log_d(scale) + 1;
  }

  Result<> yarn() {
    const double scale = TRY(factor());
    MetadataStore& store = out_.store;
    store.set_string(full("rope.scaling.type"), "yarn");
    store.set_float(full("rope.scaling.factor"), scale);
    const bool given = entry_->find("original_max_position_embeddings") != nullptr ||
                       config_.has("original_max_position_embeddings");
    const double original = given ? TRY(original_context()) : static_cast<double>(sizes_.context);
    store.set_unsigned(
        full("rope.scaling.original_context_length"), static_cast<std::int64_t>(original)
    );
    store.set_float(full("rope.scaling.yarn_beta_fast"), TRY(number_or("beta_fast", 32)));
    store.set_float(full("rope.scaling.yarn_beta_slow"), TRY(number_or("beta_slow", 1)));
    // GGUF's factor multiplies the paper's own, the config's stands for both.
    const double own = yarn_scale(scale, 1);
    double wanted = TRY(number_or("attention_factor", 0));
    if (wanted == 0) {
      const double mscale = TRY(number_or("mscale", 0));
      const double all_dims = TRY(number_or("mscale_all_dim", 0));
      const bool both = mscale != 0 && all_dims != 0;
      wanted = both ? yarn_scale(scale, mscale) / yarn_scale(scale, all_dims) : own;
    }
    if (wanted != own) store.set_float(full("rope.scaling.attn_factor"), wanted / own);
    const JsonValue* truncate = entry_->find("truncate");
    if (truncate != nullptr && truncate->boolean() != nullptr)
      store.set_bool(full("rope.scaling.yarn_truncate"), *truncate->boolean());
    return {};
  }

  Result<> llama3() {
    const double scale = TRY(factor());
    const double low = TRY(number("low_freq_factor"));
    const double high = TRY(number("high_freq_factor"));
    const double original = TRY(original_context());
    if (!(low > 0) || !(high > low)) {
      return config_.fail(
          Code::kBadFile, "{}: low_freq_factor {} and high_freq_factor {}", where_, low, high
      );
    }
    HfMadeTensor made{"rope_freqs.weight", "config.json: " + where_, {}};
    for (std::int64_t i = 0; i < dims_ / 2; ++i) {
      const double index = 2 * static_cast<double>(i) / static_cast<double>(dims_);
      const double length = kTwoPi * tensor::pow_d(theta_, index);
      double divisor = 1;
      if (length > original / low) {
        divisor = scale;
      } else if (length >= original / high) {
        const double smooth = (original / length - low) / (high - low);
        divisor = 1 / ((1 - smooth) / scale + smooth);
      }
      made.values.push_back(static_cast<float>(divisor));
    }
    out_.tensors.push_back(std::move(made));
    return {};
  }

  Result<> longrope() {
    TRY(factors("long_factor", "rope_factors_long.weight"));
    TRY(factors("short_factor", "rope_factors_short.weight"));
    const double original = TRY(original_context());
    out_.store.set_unsigned(
        full("rope.scaling.original_context_length"), static_cast<std::int64_t>(original)
    );
    // As transformers has it: from the contexts where the top level has both, else `factor`.
    const bool at_top = config_.has("original_max_position_embeddings");
    const double scale =
        at_top ? static_cast<double>(sizes_.context) / original
               : TRY(number_or("factor", static_cast<double>(sizes_.context) / original));
    const double computed =
        scale <= 1 ? 1 : std::sqrt(1 + tensor::log_d(scale) / tensor::log_d(original));
    out_.store.set_float(
        full("rope.scaling.attn_factor"), TRY(number_or("attention_factor", computed))
    );
    return {};
  }

  Result<> factors(std::string_view key, std::string_view name) {
    const JsonValue* list = entry_->find(key);
    const bool fits =
        list != nullptr && list->array() != nullptr && std::ssize(*list->array()) == dims_ / 2;
    if (!fits) {
      return config_.fail(
          Code::kBadFile,
          "{}.{} must be an array of {} numbers (half of the {} rotated dimensions)",
          where_,
          key,
          dims_ / 2,
          dims_
      );
    }
    HfMadeTensor made{std::string(name), fmt::format("config.json: {}.{}", where_, key), {}};
    for (const JsonValue& item : *list->array()) {
      const double value = item.integer() != nullptr ? static_cast<double>(*item.integer())
                           : item.real() != nullptr  ? *item.real()
                                                     : 0;
      if (!(value > 0) || !std::isfinite(value))
        return config_.fail(Code::kBadFile, "{}.{}: factors must be above 0", where_, key);
      made.values.push_back(static_cast<float>(value));
    }
    out_.tensors.push_back(std::move(made));
    return {};
  }

  const HfConfig& config_;
  const HfFamily& family_;
  const HfSizes& sizes_;
  HfMetadata& out_;
  const JsonValue* entry_ = nullptr;
  const JsonValue* window_entry_ = nullptr;
  std::string where_;
  double theta_ = 0;
  std::int64_t dims_ = 0;
};

}  // namespace

Result<> read_hf_rope(
    const HfConfig& config, const HfFamily& family, const HfSizes& sizes, HfMetadata& out
) {
  return RopeReader(config, family, sizes, out).run();
}

}  // namespace artery::model
