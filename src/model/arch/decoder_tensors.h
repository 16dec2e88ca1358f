#pragma once
// The tensors of a decoder in its file: names, shapes and where each goes, and their check. Pure,
// any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/arch/decoder_spec.h"
#include "model/arch/decoder_weights.h"
#include "model/format/model_file.h"

namespace artery::model {

// NAME.weight [size], or NAME.bias where `name` ends so.
struct VectorSlot {
  std::string_view name;  // "attn_norm.weight", after "blk.N."
  std::int64_t size;
  tensor::WeightVector DecoderLayer::* target;
};

// NAME.weight [cols, rows of all parts] and perhaps NAME.bias [rows]: one matrix, or several in
// one.
struct LinearPart {
  Linear DecoderLayer::* target;
  std::int64_t rows;
};
struct LinearSlot {
  std::string_view name;
  std::int64_t cols;
  std::vector<LinearPart> parts;
  bool bias_required = false;
  bool as_float = false;  // packed as float32
  std::int64_t rows() const;
};

// NAME.weight [cols, rows, experts] and perhaps NAME.bias [rows, experts].
struct ExpertSlot {
  std::string_view name;
  std::int64_t cols;
  std::int64_t rows;
  std::vector<tensor::WeightMatrix> DecoderLayer::* target;
  tensor::WeightVector DecoderLayer::* bias;
};

struct LayerSlots {
  std::vector<VectorSlot> vectors;
  std::vector<LinearSlot> linears;
  std::vector<ExpertSlot> experts;
};

// The same for every layer.
LayerSlots layer_slots(const DecoderSpec& spec);

// "blk.3.attn_q.weight"
std::string layer_tensor(std::int64_t layer, std::string_view name, std::string_view part = {});

// What check_decoder_tensors found: totals for ModelInfo.
struct DecoderTensors {
  std::vector<const TensorInfo*> used;  // all that will be loaded
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;                 // in the file
  std::int64_t matrix_elements = 0;       // multiplied for one token
  std::int64_t read_bytes_per_token = 0;  // read for one token, the embedding row included
};

// Every tensor's presence, shape and type, and nothing of its data. kBadFile, kUnsupported.
Result<DecoderTensors> check_decoder_tensors(const ModelFile& file, const DecoderSpec& spec);

}  // namespace artery::model
