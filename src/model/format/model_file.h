#pragma once
// What all model files look like to the rest: metadata under GGUF's keys ("llama.block_count") and
// tensors under GGUF's names ("blk.0.attn_q.weight"), be it a GGUF, a split GGUF or a folder of
// safetensors, whose names are translated when it is opened. So an architecture knows one
// vocabulary. Immutable after open, any thread. Never reads tensor data by itself.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "model/format/metadata.h"
#include "model/weight_source.h"

namespace artery::model {

class ModelFile : public WeightSource {
 public:
  // As the user named it: a file or a folder; what messages start with.
  const std::string& path() const { return path_; }
  // "GGUF v3", "safetensors": for people.
  virtual std::string format() const = 0;
  // Everything the weights digest covers, in order.
  virtual std::vector<const MappedFile*> files() const = 0;
  std::uint64_t file_bytes() const;  // of all files()
  // Paths of files(), in the same order.
  virtual std::vector<std::string> file_names() const { return {path_}; }
  // The folder whose tokenizer.json, chat template and generation_config.json belong to the model;
  // empty where the file itself holds them.
  virtual std::string folder() const { return {}; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  std::span<const GgufKey> metadata() const { return keys_; }
  const GgufValue* find_key(std::string_view key) const;

  // Typed access. Missing: kBadFile "missing metadata K"; wrong type: kBadFile with both types.
  // Unsigned accepts any integer type with a value in [0, 2^63); float any number.
  Result<std::uint64_t> get_unsigned(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::span<const std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> get_integers(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;

  const TensorInfo* find(std::string_view tensor_name) const override;
  std::span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  // Fill key_order_ and tensor_order_, kBadFile at a duplicate.
  Result<> order_keys();
  Result<> order_tensors();

  std::string path_;
  std::vector<GgufKey> keys_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> key_order_;     // indexes of keys_, by key
  std::vector<std::uint32_t> tensor_order_;  // indexes of tensors_, by name
  std::vector<std::string> warnings_;
};

}  // namespace artery::model
