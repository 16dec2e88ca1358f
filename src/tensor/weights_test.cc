#include "tensor/weights.h"

#include <cstdlib>
#include <fstream>

#include "tensor/ops/test_support.h"

namespace artery::tensor {
namespace {

using namespace artery::tensor::testing;

TEST(HugeBuffer, IsZeroedAndAligned) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    auto made = HugeBuffer::make(bytes);
    ASSERT_TRUE(made.has_value());
    const HugeBuffer buffer = made.take();
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    if (bytes >= (std::size_t{2} << 20)) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % (std::size_t{2} << 20), 0u);
    }
    for (std::size_t i = 0; i < bytes; i += 997) ASSERT_EQ(buffer.data()[i], std::byte{0});
    buffer.data()[bytes - 1] = std::byte{1};
  }
  EXPECT_EQ(HugeBuffer::make(0).value().bytes(), 0u);
}

TEST(HugeBuffer, TooMuchIsAnError) {
  for (const std::size_t bytes : {SIZE_MAX, std::size_t{1} << 60}) {
    const auto made = HugeBuffer::make(bytes);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code, Code::kOutOfMemory);
  }
}

// Pages that hold something, of all that this process has mapped.
std::int64_t resident_now() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("Anonymous:", 0) == 0) return std::atoll(line.c_str() + 10) * 1024;
  }
  return -1;
}

TEST(ResidentBytes, AreWhatTheBuffersKeep) {
  // Sizes of a small model: shared slabs, one that fits no more, pages of their own, norms.
  std::vector<std::int64_t> sizes = {5 << 20, 1000, (2 << 20) + 1, 2 << 20};
  for (int i = 0; i < 60; ++i) sizes.push_back((1 << 20) + i * 4160 - 64);
  for (int i = 0; i < 100; ++i) sizes.push_back(40000);
  ResidentBytes plan;
  std::vector<HugeBuffer> buffers;
  const std::int64_t before = resident_now();
  if (before < 0) GTEST_SKIP() << "no /proc/self/smaps_rollup";
  std::int64_t written = 0;
  for (const std::int64_t bytes : sizes) {
    plan.add(bytes);
    buffers.push_back(HugeBuffer::make(static_cast<std::size_t>(bytes)).take());
    std::fill_n(buffers.back().data(), bytes, std::byte{1});
    written += bytes;
  }
  const std::int64_t grown = resident_now() - before;
  EXPECT_GE(plan.total(), written);
  EXPECT_LE(plan.total(), written + written / 20 + (std::int64_t{4} << 20));
  // Where the system gives no large pages, only what is written becomes resident.
  EXPECT_LE(grown, plan.total() + (std::int64_t{1} << 20));
  EXPECT_GE(grown, written - (std::int64_t{1} << 20));
}

TEST(ResidentBytes, SmallBuffersShareSlabs) {
  ResidentBytes plan;
  EXPECT_EQ(plan.total(), 0);
  plan.add(0);
  EXPECT_EQ(plan.total(), 0);
  plan.add(1);
  EXPECT_EQ(plan.total(), 4096);
  for (int i = 0; i < 32; ++i) plan.add(1 << 20);  // one slab, full
  EXPECT_EQ(plan.total(), 4096 + (32 << 20));
  plan.add(32 << 10);
  EXPECT_EQ(plan.total(), 4096 + (34 << 20));
  plan.add((2 << 20) + 1);
  EXPECT_EQ(plan.total(), 4096 + (38 << 20));
}

TEST(WeightMatrix, DecodesEveryRowAsTheFileHasIt) {
  Rng rng(41);
  for (const DType type : all_weight_types()) {
    const TypeTraits& t = traits(type);
    for (const int threads : {1, 3}) {
      ComputePool pool(threads);
      for (const std::int64_t rows : {1, 16, 35}) {
        const std::int64_t cols = t.block_values == 1 ? 75 : 3 * t.block_values;
        const auto raw = random_weights(type, rows, cols, rng);
        auto packed = WeightMatrix::pack(type, rows, cols, raw, pool);
        ASSERT_TRUE(packed.has_value()) << name(type);
        const WeightMatrix w = packed.take();
        EXPECT_EQ(w.tiles(), (rows + 15) / 16);
        EXPECT_EQ(w.tile_bytes() % 64, 0u);
        EXPECT_EQ(
            WeightMatrix::packed_bytes(type, rows, cols), static_cast<std::int64_t>(w.bytes())
        );
        const std::size_t row = raw.size() / static_cast<std::size_t>(rows);
        // Interleaving costs no memory beyond a cache line a tile: decode is bound by reads.
        EXPECT_LE(w.tile_bytes(), 16 * row + 64) << name(type);
        for (std::int64_t r = 0; r < rows; ++r) {
          std::vector<float> got(static_cast<std::size_t>(cols));
          std::vector<float> want(static_cast<std::size_t>(cols));
          w.decode_row(r, got);
          quant::decode_row(
              type, std::span(raw).subspan(static_cast<std::size_t>(r) * row, row), want
          );
          ASSERT_TRUE(same_bits(got, want)) << name(type) << " row " << r << " of " << rows;
        }
      }
    }
  }
}

TEST(WeightMatrix, RefusesWhatIsNoWeight) {
  ComputePool pool(1);
  const std::vector<std::byte> raw(4096);
  EXPECT_EQ(
      WeightMatrix::pack(DType::kI32, 1, 4, std::span(raw).first(16), pool).error().code,
      Code::kUnsupported
  );
  EXPECT_EQ(
      WeightMatrix::pack(DType::kQ4_0, 1, 33, std::span(raw).first(18), pool).error().code,
      Code::kBadFile
  );
  EXPECT_TRUE(WeightMatrix::pack(DType::kF32, 0, 8, {}, pool).value().empty());
}

}  // namespace
}  // namespace artery::tensor
