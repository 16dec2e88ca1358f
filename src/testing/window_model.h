#pragma once
// HashModel's kin with several layers, some of which see a window only: every bit of its logits
// depends on all entries that its layers may read, through the layers in turn, so a window entry
// lost, overwritten, made from rows that were not exact, or read behind the window changes the
// output. For engine tests; costs the square of the context.

#include <cstdint>
#include <string>

#include "model/model.h"

namespace artery::testing {

class WindowModel final : public model::Model {
 public:
  // `layers`: one letter each, 'g' sees all positions, 'w' the last `window`, its own among them.
  // The groups lie in the layout in the order their letters first come; without a 'g' there is a
  // global group of no layers if `empty_global`, else none.
  WindowModel(
      std::int64_t vocab_size,
      std::int64_t context_length,
      std::string layers,
      int window,
      bool empty_global = true
  );

  const model::ModelInfo& info() const override { return info_; }
  model::KvLayout kv_layout() const override { return layout_; }
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override;
  // Of a stored record; before an engine is made.
  void set_record_pages(int pages) { layout_.record_pages = pages; }

 private:
  std::uint64_t layer(
      const model::ForwardBatch& batch,
      std::int64_t sequence,
      std::size_t row,
      std::size_t layer,
      std::uint64_t x
  ) const;

  const std::string layers_;
  model::ModelInfo info_;
  model::KvLayout layout_;
};

}  // namespace artery::testing
