#include "tensor/weights.h"

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

TEST(WeightMatrix, DecodesEveryRowAsTheFileHasIt) {
  Rng rng(41);
  for (const DType type : weight_types()) {
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
