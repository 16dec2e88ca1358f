#pragma once
// Internal to quant/: the codebooks of the IQ types, which are part of the file format. Constant
// data, any thread.

#include <array>
#include <cstddef>
#include <cstdint>

namespace artery::tensor::quant {

template <std::size_t kEntries, std::size_t kValues>
using Grid = std::array<std::array<std::int8_t, kValues>, kEntries>;

// Magnitudes; the sign comes from the block.
extern const Grid<256, 8> kIq2XxsGrid;
extern const Grid<512, 8> kIq2XsGrid;
extern const Grid<1024, 8> kIq2SGrid;
extern const Grid<256, 4> kIq3XxsGrid;
extern const Grid<512, 4> kIq3SGrid;
// -1, 0 or 1; of IQ1_S and IQ1_M.
extern const Grid<2048, 8> kIq1Grid;

}  // namespace artery::tensor::quant
