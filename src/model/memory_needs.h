#pragma once
// What a model will take in memory, from its file's metadata and list of tensors alone, before any
// weight is read: `doctor` and `serve` plan with it (cli/memory_plan.h). Numbers of bytes that are
// committed when everything is used: tables, scratch and pool are only reserved at first. Values,
// any thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/format/model_file.h"
#include "model/kv_layout.h"
#include "tensor/backend.h"
#include "tensor/dtype.h"

namespace artery::model {

struct WeightsOfType {
  tensor::DType type = tensor::DType::kF32;
  std::int64_t values = 0;
  std::int64_t bytes = 0;  // as packed
};

// How a forward will be run.
struct NeedsWish {
  tensor::KvType kv_type = tensor::KvType::kI16;
  bool reference = false;    // --numerics reference: double activations
  std::int64_t context = 0;  // positions served; 0: all the model has
};

struct MemoryNeeds {
  std::vector<WeightsOfType> weights;      // largest first; vectors are float32
  std::int64_t resident_weight_bytes = 0;  // of all of them, in the pages that hold them
  std::int64_t load_bytes = 0;  // a tensor laid out anew while it is packed; 0: views of the file
  KvLayout kv;
  std::int64_t table_bytes_per_position = 0;  // of the context: cosines and sines
  // Scratch of a forward.
  std::int64_t row_bytes = 0;        // a row of the batch
  std::int64_t logit_row_bytes = 0;  // a row whose logits are wanted, on top of that
  std::int64_t thread_bytes = 0;     // a thread of the compute pool
  // Partial results of attention that decoding rows leave, a position of their context.
  std::int64_t partial_bytes_per_position = 0;

  std::int64_t weight_bytes() const;
};

// What must hold of a file's tensors is checked by check_model first. kBadFile, kUnsupported.
Result<MemoryNeeds> memory_needs(const ModelFile& file, const NeedsWish& wish);

// Adds up the weights of `tensors` as they will be packed: matrices, stacks of experts (three
// dimensions) and vectors.
void add_weights(std::span<const TensorInfo* const> tensors, MemoryNeeds& needs);

}  // namespace artery::model
