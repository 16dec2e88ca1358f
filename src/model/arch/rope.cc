#include "model/arch/rope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/math.h"

namespace artery::model {
namespace {

constexpr double kTwoPi = 6.283185307179586;
constexpr double kAngleMax = 1e9;  // sincos_d's domain
constexpr std::int64_t kTableBytesMax = std::int64_t{4} << 30;

Result<> read_yarn(const HyperParameters& hyper, std::int64_t context, YarnSpec& yarn) {
  yarn.enabled = true;
  yarn.original_context = static_cast<double>(
      TRY(hyper.count_or("rope.scaling.original_context_length", 1 << 28, context))
  );
  yarn.mix = TRY(hyper.number_or("rope.scaling.yarn_ext_factor", 1));
  yarn.attn_factor = TRY(hyper.number_or("rope.scaling.attn_factor", 1));
  yarn.attn_factor *= TRY(hyper.number_or("rope.scaling.yarn_attn_factor", 1));
  yarn.beta_fast = TRY(hyper.number_or("rope.scaling.yarn_beta_fast", 32));
  yarn.beta_slow = TRY(hyper.number_or("rope.scaling.yarn_beta_slow", 1));
  if (!(yarn.beta_fast > 0) || !(yarn.beta_slow > 0))
    return hyper.fail(Code::kBadFile, "{}: YaRN's betas must be above 0", hyper.full("rope"));
  return {};
}

// The magnitude is sqrt(1 + ln(s) / ln(original context)) where the context was extended s times
// (Ding et al. 2024, section 3.3); converters write it down.
Result<> read_longrope(const HyperParameters& hyper, std::int64_t context, RopeSpec& spec) {
  spec.factor = 1;
  spec.short_context = TRY(hyper.count("rope.scaling.original_context_length", 1 << 28));
  const auto original = static_cast<double>(spec.short_context);
  const double stretch = static_cast<double>(context) / original;
  const double computed = stretch > 1 && original > 1
                              ? __builtin_sqrt(1 + tensor::log_d(stretch) / tensor::log_d(original))
                              : 1;
  spec.magnitude = TRY(hyper.number_or("rope.scaling.attn_factor", computed));
  if (spec.magnitude > 0 && spec.magnitude < 1e3) return {};
  return hyper.fail(
      Code::kBadFile,
      "{} is {}, expected a factor above 0",
      hyper.full("rope.scaling.attn_factor"),
      spec.magnitude
  );
}

Result<> read_scaling(const HyperParameters& hyper, std::int64_t context, RopeSpec& spec) {
  const bool long_tensors = hyper.file().find("rope_factors_long.weight") != nullptr ||
                            hyper.file().find("rope_factors_short.weight") != nullptr;
  // Without a type, a factor means linear scaling: so were the first files written.
  const std::string_view type = TRY(hyper.text_or("rope.scaling.type", "linear"));
  if (long_tensors || type == "longrope") return read_longrope(hyper, context, spec);
  const bool has_factor = hyper.has("rope.scaling.factor");
  const double old_factor = TRY(hyper.number_or("rope.scale_linear", 1));
  spec.factor = has_factor ? TRY(hyper.number("rope.scaling.factor")) : old_factor;
  // Converters write a factor of 0 where there is no scaling.
  if (type == "none" || (spec.factor == 0 && type == "linear")) spec.factor = 1;
  if (!(spec.factor > 0) || spec.factor > 1e6) {
    return hyper.fail(
        Code::kBadFile,
        "{} is {}, expected a factor above 0",
        hyper.full("rope.scaling.factor"),
        spec.factor
    );
  }
  if (type == "none" || type == "linear") return {};
  if (type == "yarn") return read_yarn(hyper, context, spec.yarn);
  return hyper.fail(
      Code::kUnsupported,
      "{} is '{}': this RoPE scaling is not supported yet (known: none, linear, yarn, longrope, "
      "and "
      "Llama 3's rope_freqs.weight)",
      hyper.full("rope.scaling.type"),
      type
  );
}

// The frequency index at which a dimension turns `rotations` times within the original context
// (YaRN, equation 22 of the code release: "find_correction_dim").
double correction_index(const RopeSpec& spec, double rotations) {
  const double turns = spec.yarn.original_context / (rotations * kTwoPi);
  return spec.dims * tensor::log_d(turns) / (2 * tensor::log_d(spec.base));
}

// Radians per position of each frequency.
std::vector<double> frequencies(const RopeSpec& spec, std::span<const float> divisors) {
  const int count = spec.dims / 2;
  double low = 0;
  double high = 0;
  if (spec.yarn.enabled) {
    low = correction_index(spec, spec.yarn.beta_fast);
    high = correction_index(spec, spec.yarn.beta_slow);
    if (spec.yarn.truncated) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(0.0, low);
    high = std::min(spec.dims - 1.0, high);
  }
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    double kept = tensor::pow_d(spec.base, -2.0 * i / spec.dims);
    if (!divisors.empty()) kept /= static_cast<double>(divisors[static_cast<std::size_t>(i)]);
    const double stretched = kept / spec.factor;
    double mix = 0;
    if (spec.yarn.enabled) {
      const double ramp = (i - low) / std::max(0.001, high - low);
      mix = (1 - std::clamp(ramp, 0.0, 1.0)) * spec.yarn.mix;
    }
    out.push_back(stretched * (1 - mix) + kept * mix);
  }
  return out;
}

// What cosines and sines are multiplied by; for YaRN sqrt(1 / t) of the paper's equation 22.
double magnitude(const RopeSpec& spec) {
  if (!spec.yarn.enabled) return spec.magnitude;
  const double paper =
      spec.yarn.mix != 0 && spec.factor > 1 ? 1 + 0.1 * tensor::log_d(spec.factor) : 1;
  return paper * spec.yarn.attn_factor;
}

}  // namespace

Result<RopeSpec> read_rope(
    const HyperParameters& hyper,
    tensor::RopeStyle style,
    std::int64_t head_dim,
    std::int64_t context
) {
  RopeSpec spec;
  spec.style = style;
  const std::int64_t dims = TRY(hyper.count_or("rope.dimension_count", 1 << 16, head_dim));
  if (dims % 2 != 0 || dims > head_dim) {
    return hyper.fail(
        Code::kBadFile,
        "{} {} is odd or larger than the head size {}",
        hyper.full("rope.dimension_count"),
        dims,
        head_dim
    );
  }
  spec.dims = static_cast<int>(dims);
  spec.base = TRY(hyper.number_or("rope.freq_base", 10000));
  // At 1 all frequencies would be equal, and YaRN would divide by log(1).
  if (!(spec.base > 1)) {
    return hyper.fail(
        Code::kBadFile, "{} is {}, expected more than 1", hyper.full("rope.freq_base"), spec.base
    );
  }
  TRY(read_scaling(hyper, context, spec));
  return spec;
}

const char* divisors_tensor(const RopeSpec& spec, std::int64_t context) {
  if (spec.short_context == 0) return "rope_freqs.weight";
  return context > spec.short_context ? "rope_factors_long.weight" : "rope_factors_short.weight";
}

Result<tensor::RopeTable> make_rope_table(
    const RopeSpec& spec,
    std::int64_t positions,
    std::span<const float> divisors,
    tensor::ComputePool& pool
) {
  const std::int64_t count = spec.dims / 2;
  const std::int64_t bytes = positions * count * 16;
  if (bytes > kTableBytesMax) {
    return fail(
        Code::kOutOfMemory,
        "the RoPE table of {} positions needs {} bytes; use a smaller context",
        positions,
        bytes
    );
  }
  const std::vector<double> turn = frequencies(spec, divisors);
  for (const double radians : turn) {
    // Written so that NaN fails.
    if (!(std::abs(radians) * static_cast<double>(positions) <= kAngleMax))
      return fail(Code::kBadFile, "rope_freqs.weight or the RoPE factors are out of range");
  }
  const double scale = magnitude(spec);
  tensor::RopeTable table{.style = spec.style, .rotary_dims = spec.dims, .cos = {}, .sin = {}};
  table.cos.resize(static_cast<std::size_t>(positions * count));
  table.sin.resize(table.cos.size());
  pool.parallel_for(positions, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(p * count + i);
        const double angle = static_cast<double>(p) * turn[static_cast<std::size_t>(i)];
        tensor::sincos_d(angle, table.sin[at], table.cos[at]);
        table.sin[at] *= scale;
        table.cos[at] *= scale;
      }
    }
  });
  return table;
}

}  // namespace artery::model
