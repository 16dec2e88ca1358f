#pragma once
// The KV memory of a replica: a page space for the global groups of the layout and, where there
// are any, one for its window groups. A sequence's global pages count from position 0 on, are
// chained by keys and are what the scheduler reckons with (a model of window layers only has them
// too, of 0 bytes); of window pages a sequence holds those near its end. Engine thread only; the
// groups' memory is the computing thread's while a step runs.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv_pool.h"
#include "engine/window_shape.h"

namespace artery::engine {

class KvSpaces {
 public:
  // `window_pages`: 0 for a layout without window groups. kOutOfMemory.
  static Result<std::unique_ptr<KvSpaces>> make(
      const model::KvLayout& layout, std::int64_t pages, std::int64_t window_pages = 0
  );

  KvPool& global() { return *global_; }
  const KvPool& global() const { return *global_; }
  // Only with shape().
  KvPool& window() { return *window_; }
  const KvPool& window() const { return *window_; }
  const WindowShape& shape() const { return shape_; }
  // WindowShape::replay. Before the first sequence.
  void set_replay(std::int64_t rows) { shape_.replay = rows; }

  // One per group of the layout, for ForwardBatch.
  std::span<const tensor::KvPages> kv() const { return kv_; }
  model::KvKind kind(std::size_t group) const { return kinds_[group]; }

 private:
  KvSpaces() = default;

  std::unique_ptr<KvPool> global_;
  std::unique_ptr<KvPool> window_;
  WindowShape shape_;
  std::vector<tensor::KvPages> kv_;
  std::vector<model::KvKind> kinds_;
};

}  // namespace artery::engine
