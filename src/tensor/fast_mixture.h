#pragma once
// What FastBackend::experts keeps between its loops: the rows sorted by expert, their rounded
// activations, the hidden rows. Memory grows and is used again. One thread plans it, the pool's
// threads fill disjoint parts. Private to fast_*.cc.

#include <cstdint>
#include <vector>

#include "tensor/ops/arena.h"
#include "tensor/ops/kernel_table.h"

namespace artery::tensor {

struct Mixture {
  // A slot is a row for one of its experts; slots are sorted by expert, then by row.
  struct Part {
    std::int32_t expert = 0;
    std::int32_t first = 0;  // slot
    std::int32_t rows = 0;
  };
  std::vector<Part> parts;            // of the experts that have rows
  std::vector<std::int32_t> row;      // of each slot
  std::vector<std::int32_t> slot;     // of each row's experts [rows, used]
  std::vector<std::int32_t> next;     // of each expert, while sorting
  std::int64_t most_rows = 0;         // of an expert
  std::vector<std::int32_t> offsets;  // distinct ones of gate and up
  ops::Scratch<ops::ActBlock> act;    // for each offset: the rows, then the slots
  ops::Scratch<float> x;              // the slots' rows, where a float kernel reads them
  ops::Scratch<float> groups;         // ... packed for the bfloat16 kernel, each part by itself
  ops::Scratch<ops::ActBlock> hidden_act;
  ops::Scratch<float> hidden;
  ops::Scratch<float> hidden_groups;
  ops::Scratch<float> halves;  // of a thread: gate and up of some columns
  std::int64_t halves_stride = 0;
  ops::Scratch<float> down;             // [slots, some columns]
  ops::Scratch<const float*> pointers;  // of a thread

  std::int64_t rows_of_a_part() const {  // about
    const auto count = static_cast<std::int64_t>(parts.size());
    return (static_cast<std::int64_t>(row.size()) + count - 1) / count;
  }
};

}  // namespace artery::tensor
