#pragma once
// config.json as metadata under GGUF's keys, and the tensors that GGUF stores for what config.json
// only describes (RoPE divisors). Pure, any thread.

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/format/hf_config.h"
#include "model/format/hf_family.h"
#include "model/format/metadata.h"

namespace artery::model {

// Keys and the texts they point into: they move together.
class MetadataStore {
 public:
  void set_unsigned(std::string_view key, std::int64_t value);
  void set_float(std::string_view key, double value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_bools(std::string_view key, const std::vector<bool>& values);
  std::vector<GgufKey>& keys() { return keys_; }

 private:
  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }
  void add(std::string_view key, GgufType type, decltype(GgufValue::value) value);
  std::deque<std::string> texts_;  // a deque: its items stay where they are
  std::vector<GgufKey> keys_;
};

// A tensor of float32 that the checkpoint does not hold.
struct HfMadeTensor {
  std::string name;    // GGUF's
  std::string source;  // the key of config.json
  std::vector<float> values;
};

struct HfMetadata {
  MetadataStore store;
  std::vector<HfMadeTensor> tensors;
  std::vector<std::string> warnings;
};

// `name`: general.name. kBadFile; kUnsupported: what this program cannot compute or read, by the
// name config.json gives it (a quantization, a RoPE scaling, an activation).
Result<HfMetadata> read_hf_metadata(
    const HfConfig& config, const HfFamily& family, const HfSizes& sizes, std::string_view name
);

// RoPE's keys alone (rope_theta, rope_scaling or rope_parameters); called by the above.
Result<> read_hf_rope(
    const HfConfig& config, const HfFamily& family, const HfSizes& sizes, HfMetadata& out
);

}  // namespace artery::model
