#include "model/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "model/digest.h"
#include "testing/mem_file_system.h"
#include "testing/model_runner.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::GgufWriter;
using testing::tiny_model;
using testing::TinyModelOptions;

Result<std::unique_ptr<GgufFile>> open(const GgufWriter& writer) {
  testing::MemFileSystem files;
  files.add("dir/tiny-x.gguf", writer.bytes());
  return GgufFile::open("dir/tiny-x.gguf", files);
}

Result<ModelInfo> check(const GgufWriter& writer) {
  const auto file = TRY(open(writer));
  return check_model(*file);
}

constexpr std::int64_t kVocab = 259;

TEST(CheckModel, FillsTheInfo) {
  const auto info = check(tiny_model({}));
  ASSERT_TRUE(info) << info.error().message;
  // Two layers of q 64x64, k and v 64x32, output 64x64, three of 64x96.
  const std::int64_t matrices = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 64 * kVocab;
  const std::int64_t norms = 5 * 64;
  EXPECT_EQ(info->architecture, "llama");
  EXPECT_EQ(info->name, "tiny");
  EXPECT_EQ(info->vocab_size, kVocab);
  EXPECT_EQ(info->context_length, 512);
  EXPECT_EQ(info->embedding_length, 64);
  EXPECT_EQ(info->layers, 2);
  EXPECT_EQ(info->parameters, matrices + norms + 64 * kVocab);
  EXPECT_EQ(info->weight_bytes, 4 * info->parameters);
  EXPECT_EQ(info->read_bytes_per_token, 4 * (matrices + norms + 64));
  EXPECT_EQ(info->ops_per_token, 2 * matrices);
  EXPECT_TRUE(info->warnings.empty());
  EXPECT_EQ(info->slow_types, "");
  EXPECT_EQ(info->weights_digest, "");
}

TEST(CheckModel, TiedOutputReadsTheEmbedding) {
  const auto tied = check(tiny_model({.tied = true}));
  const auto separate = check(tiny_model({}));
  ASSERT_TRUE(tied && separate);
  EXPECT_EQ(tied->ops_per_token, separate->ops_per_token);
  EXPECT_EQ(tied->parameters, separate->parameters - 64 * kVocab);
  EXPECT_EQ(tied->read_bytes_per_token, separate->read_bytes_per_token - 4 * 64);
}

TEST(CheckModel, TheNameFallsBackToTheFile) {
  GgufWriter writer = tiny_model({});
  writer.remove_key("general.name");
  EXPECT_EQ(check(writer)->name, "tiny-x");
}

TEST(CheckModel, AcceptsEveryForm) {
  const std::vector<TinyModelOptions> forms = {
      {.architecture = "qwen2"},
      {.heads = 4, .kv_heads = 4},
      {.heads = 4, .kv_heads = 1},
      {.head_dim = 32},
      {.vocab = 300, .tied = true},
      {.weight_type = tensor::DType::kQ8_0},
      {.weight_type = tensor::DType::kQ4_1},
      {.tokenizer = testing::TinyTokenizer::kSentencePiece},
  };
  for (const TinyModelOptions& form : forms) {
    const auto info = check(tiny_model(form));
    EXPECT_TRUE(info) << info.error().message;
  }
}

TEST(CheckModel, UnusedTensorsAreNamedInOneWarning) {
  GgufWriter writer = tiny_model({});
  const std::vector<float> values(32, 1);
  for (const char* name : {"v.patch.weight", "mtp.weight"})
    writer.set_values(name, tensor::DType::kF32, {32}, values);
  const auto info = check(writer);
  ASSERT_TRUE(info);
  ASSERT_EQ(info->warnings.size(), 1u);
  EXPECT_NE(
      info->warnings[0].find("2 tensors are not used: v.patch.weight, mtp.weight"),
      std::string::npos
  ) << info->warnings[0];
}

struct Spoiled {
  void (*spoil)(GgufWriter&);
  Code code;
  const char* piece;
  const char* architecture = "llama";
};

void add_vector(GgufWriter& writer, const char* name, int size) {
  writer.set_values(
      name, tensor::DType::kF32, {size}, std::vector<float>(static_cast<std::size_t>(size), 1.0f)
  );
}

const Spoiled kSpoiled[] = {
    {[](GgufWriter& w) { w.set_unsigned("qwen2.attention.sliding_window", 128); },
     Code::kUnsupported,
     "qwen2.attention.sliding_window is 128, less than the context of 512",
     "qwen2"},
    {[](GgufWriter& w) { w.set_unsigned("qwen2.expert_count", 8); },
     Code::kUnsupported,
     "qwen2.expert_count is 8: experts in the family qwen2",
     "qwen2"},
    {[](GgufWriter& w) { w.set_float("llama.final_logit_softcapping", 30); },
     Code::kUnsupported,
     "llama.final_logit_softcapping: capped logits"},
    {[](GgufWriter& w) { w.set_unsigned("split.count", 3); },
     Code::kBadFile,
     "one of 3 parts of a split model"},
    {[](GgufWriter& w) { w.set_unsigned("llama.attention.value_length", 32); },
     Code::kUnsupported,
     "heads of 16 key and 32 value dimensions"},
    {[](GgufWriter& w) { add_vector(w, "rope_factors_long.weight", 8); },
     Code::kBadFile,
     "missing metadata llama.rope.scaling.original_context_length"},
    {[](GgufWriter& w) {
       add_vector(w, "rope_factors_long.weight", 8);
       w.set_unsigned("llama.rope.scaling.original_context_length", 64);
     },
     Code::kBadFile,
     "missing tensor rope_factors_short.weight, expected with shape [8]"},
    {[](GgufWriter& w) { add_vector(w, "rope_freqs.weight", 9); },
     Code::kBadFile,
     "rope_freqs.weight has shape [9], expected [8]"},
    {[](GgufWriter& w) { add_vector(w, "blk.1.attn_k.bias", 64); },
     Code::kBadFile,
     "blk.1.attn_k.bias has shape [64], expected [32]"},
    {[](GgufWriter& w) { w.remove_tensor("blk.1.attn_v.bias"); },
     Code::kBadFile,
     "missing tensor blk.1.attn_v.bias",
     "qwen2"},
    {[](GgufWriter& w) { w.remove_tensor("token_embd.weight"); },
     Code::kBadFile,
     "missing tensor token_embd.weight"},
    {[](GgufWriter& w) {
       w.set_tensor("output.weight", tensor::DType::kI8, {64, kVocab}, std::string(64 * kVocab, 0));
     },
     Code::kUnsupported,
     "output.weight has type I8, which cannot hold weights"},
    {[](GgufWriter& w) { w.set_unsigned("llama.context_length", 1u << 30); },
     Code::kUnsupported,
     "llama.context_length is 1073741824, the limit is"},
    {[](GgufWriter& w) { w.set_float("llama.attention.layer_norm_rms_epsilon", -1); },
     Code::kBadFile,
     "expected 0 to 1"},
    {[](GgufWriter& w) { w.set_bool("llama.attention.causal", false); },
     Code::kUnsupported,
     "not causal"},
    {[](GgufWriter& w) { w.remove_key("tokenizer.ggml.model"); },
     Code::kBadFile,
     "missing metadata tokenizer.ggml.model"},
};

TEST(CheckModel, RefusesAndSaysWhy) {
  for (const Spoiled& c : kSpoiled) {
    SCOPED_TRACE(c.piece);
    GgufWriter writer = tiny_model({.architecture = c.architecture});
    c.spoil(writer);
    const auto info = check(writer);
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code, c.code);
    EXPECT_EQ(info.error().message.find("dir/tiny-x.gguf: "), 0u) << info.error().message;
    EXPECT_NE(info.error().message.find(c.piece), std::string::npos) << info.error().message;
  }
}

TEST(CheckModel, AWindowThatCoversTheContextIsNoWindow) {
  GgufWriter writer = tiny_model({});
  writer.set_unsigned("llama.attention.sliding_window", 512);
  EXPECT_TRUE(check(writer));
}

TEST(TreeDigest, IsTheHashOfLeafHashesAndLength) {
  std::vector<std::byte> bytes(2 * kDigestLeafBytes + 100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 5);
  std::vector<std::byte> nodes;
  for (std::size_t at = 0; at < bytes.size(); at += kDigestLeafBytes) {
    const Digest leaf =
        sha256(std::span(bytes).subspan(at, std::min(kDigestLeafBytes, bytes.size() - at)));
    for (const std::uint8_t b : leaf) nodes.push_back(std::byte{b});
  }
  for (int i = 0; i < 8; ++i) nodes.push_back(static_cast<std::byte>(bytes.size() >> (8 * i)));
  for (const int threads : {1, 3}) {
    tensor::ComputePool pool(threads);
    EXPECT_EQ(tree_digest(bytes, pool), hex(sha256(nodes)));
  }
  tensor::ComputePool pool(1);
  const std::string before = tree_digest(bytes, pool);
  bytes[5'000'000] ^= std::byte{1};
  EXPECT_NE(tree_digest(bytes, pool), before);
}

}  // namespace
}  // namespace artery::model
