#pragma once
// Rotary position embedding: a file's parameters and the table of cosines and sines the backends
// read. Pure, any thread.

#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/arch/hyper_parameters.h"
#include "tensor/backend.h"
#include "tensor/compute_pool.h"

namespace artery::model {

// YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension", section 3): low frequencies
// are interpolated by `factor`, high ones kept, with a linear ramp between.
struct YarnSpec {
  bool enabled = false;
  double original_context = 0;
  double mix = 1;          // share of the ramp that is applied ("ext factor")
  double beta_fast = 32;   // rotations within the original context above which nothing changes
  double beta_slow = 1;    // and below which all is interpolated
  double attn_factor = 1;  // on top of the paper's 1 + 0.1 ln(factor)
  bool truncated = true;   // the ramp's ends are whole indexes (not in gpt-oss)
  bool operator==(const YarnSpec&) const = default;
};

struct RopeSpec {
  tensor::RopeStyle style = tensor::RopeStyle::kAdjacentPairs;
  int dims = 0;       // rotated dimensions of a head
  double base = 1e4;  // frequency i is base^(-2 i / dims)
  double factor = 1;  // context extension: positions are divided by it (linear scaling)
  YarnSpec yarn;
  // LongRoPE (Ding et al. 2024): divisors for contexts up to this length and others above it, in
  // rope_factors_short.weight and rope_factors_long.weight. 0: there are none.
  std::int64_t short_context = 0;
  double magnitude = 1;  // cosines and sines are multiplied by it
  bool operator==(const RopeSpec&) const = default;
};

// Keys rope.dimension_count, rope.freq_base, rope.scaling.*, rope.scale_linear; LongRoPE where the
// file has its tensors. kBadFile, kUnsupported (a scaling type we do not know).
Result<RopeSpec> read_rope(
    const HyperParameters& hyper,
    tensor::RopeStyle style,
    std::int64_t head_dim,
    std::int64_t context
);

// The tensor of a file that has this RoPE's divisors when `context` positions are served.
const char* divisors_tensor(const RopeSpec& spec, std::int64_t context);

// `divisors`: one per frequency (Llama 3's rope_freqs.weight), or empty. Angles in double, by
// tensor/math.h. kBadFile: divisors out of range; kOutOfMemory.
Result<tensor::RopeTable> make_rope_table(
    const RopeSpec& spec,
    std::int64_t positions,
    std::span<const float> divisors,
    tensor::ComputePool& pool
);

}  // namespace artery::model
