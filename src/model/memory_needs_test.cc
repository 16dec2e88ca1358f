#include "model/memory_needs.h"

#include <gtest/gtest.h>

#include <memory>

#include "model/format/gguf.h"
#include "model/load.h"
#include "testing/mem_file_system.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::GgufWriter;
using testing::tiny_model;

Result<std::unique_ptr<GgufFile>> open(const GgufWriter& writer) {
  testing::MemFileSystem files;
  files.add("tiny.gguf", writer.bytes());
  return GgufFile::open("tiny.gguf", files);
}

std::int64_t bytes_of(const MemoryNeeds& needs, tensor::DType type) {
  for (const WeightsOfType& each : needs.weights)
    if (each.type == type) return each.bytes;
  return 0;
}

// The plan against what the loaded model says of itself.
TEST(MemoryNeeds, WeightsAndKvAreThoseOfTheLoadedModel) {
  for (const auto type : {tensor::DType::kF32, tensor::DType::kQ8_0, tensor::DType::kQ4_1}) {
    const auto file = open(tiny_model({.weight_type = type}));
    ASSERT_TRUE(file) << file.error().message;
    const auto needs = memory_needs(**file, {});
    ASSERT_TRUE(needs) << needs.error().message;
    tensor::ComputePool pool(1);
    const auto backend = tensor::make_fast_backend(pool, tensor::Isa::kScalar);
    const auto model = load_model(**file, *backend, {});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(needs->weight_bytes(), (*model)->info().weight_bytes) << tensor::name(type);
    const KvLayout layout = (*model)->kv_layout();
    EXPECT_EQ(needs->kv.bytes_per_token(), layout.bytes_per_token());
    ASSERT_EQ(needs->kv.groups.size(), layout.groups.size());
    EXPECT_EQ(needs->kv.groups[0].geometry.page_bytes(), layout.groups[0].geometry.page_bytes());
  }
}

TEST(MemoryNeeds, WeightsAreSortedByTheirBytes) {
  const auto file = open(tiny_model({.weight_type = tensor::DType::kQ8_0}));
  ASSERT_TRUE(file);
  const auto needs = memory_needs(**file, {});
  ASSERT_TRUE(needs);
  ASSERT_EQ(needs->weights.size(), 2u);  // and the norms
  EXPECT_EQ(needs->weights[0].type, tensor::DType::kQ8_0);
  EXPECT_EQ(bytes_of(*needs, tensor::DType::kF32), 5 * 64 * 4);
}

// Field report F4's value: layers x 2 x KV heads x head dimension x bytes.
TEST(MemoryNeeds, KvBytesFollowTheType) {
  const auto file = open(tiny_model({.heads = 4, .kv_heads = 2}));  // 2 layers, heads of 16
  ASSERT_TRUE(file);
  const auto bytes = [&](tensor::KvType type) {
    return memory_needs(**file, {.kv_type = type})->kv.bytes_per_token();
  };
  EXPECT_EQ(bytes(tensor::KvType::kF32), 2 * 2 * 2 * 16 * 4);
  EXPECT_EQ(bytes(tensor::KvType::kF16), 2 * 2 * 2 * 16 * 2);
  EXPECT_EQ(bytes(tensor::KvType::kI16), 2 * 2 * 2 * (16 * 2 + 4));
}

TEST(MemoryNeeds, KvBytesOfPublishedShapes) {
  const auto bytes = [](int layers, int kv_heads, int head_dim) {
    const tensor::KvGeometry geometry{layers, kv_heads, head_dim, tensor::KvType::kF16};
    return geometry.page_bytes() / kPageTokens;
  };
  EXPECT_EQ(bytes(32, 8, 128), 131072);  // Llama-3.1-8B
  EXPECT_EQ(bytes(28, 8, 128), 114688);  // Qwen3-0.6B
}

TEST(MemoryNeeds, ReferenceActivationsAreTwiceAsWide) {
  const auto file = open(tiny_model({}));
  ASSERT_TRUE(file);
  const auto fast = memory_needs(**file, {});
  const auto reference = memory_needs(**file, {.reference = true});
  ASSERT_TRUE(fast && reference);
  EXPECT_GT(reference->logit_row_bytes, fast->logit_row_bytes);
  EXPECT_EQ(reference->weight_bytes(), fast->weight_bytes());
}

TEST(MemoryNeeds, LargeMatricesAreHeldInWholeHugePages) {
  const auto info_of = [](tensor::DType type, std::vector<std::int64_t> shape) {
    TensorInfo info;
    info.type = type;
    info.shape = std::move(shape);
    return info;
  };
  const TensorInfo small = info_of(tensor::DType::kF32, {256, 1024});
  const TensorInfo large = info_of(tensor::DType::kF32, {256, 2560});
  const TensorInfo stack = info_of(tensor::DType::kQ4_0, {256, 32, 8});
  const TensorInfo* all[] = {&small, &large, &stack};
  MemoryNeeds needs;
  add_weights(all, needs);
  EXPECT_EQ(bytes_of(needs, tensor::DType::kF32), (1024 + 2560) << 10);
  EXPECT_EQ(bytes_of(needs, tensor::DType::kQ4_0), 8 * 32 * 144);
  // The large one in two pages of 2 MiB, the small one in its share of one; what is smaller than
  // 32 KiB in pages of 4 KiB.
  EXPECT_EQ(needs.resident_weight_bytes, (6 << 20) + 8 * (8 << 10));
}

}  // namespace
}  // namespace artery::model
