// What the families ask of a file and refuse; that they compute right is tests/golden.

#include "model/arch/families.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/format/gguf.h"
#include "model/load.h"
#include "testing/mem_file_system.h"
#include "testing/model_runner.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using tensor::DType;
using testing::GgufWriter;
using testing::TinyModelOptions;

TinyModelOptions tiny(const char* architecture) {
  TinyModelOptions options;
  options.architecture = architecture;
  const std::string_view name = architecture;
  if (name == "gemma3" || name == "gpt-oss" || name == "phi3") options.window = 64;
  if (name.ends_with("moe") || name == "gpt-oss") options.experts = 4;
  if (name == "qwen2moe") options.shared_feed_forward = 32;
  return options;
}

Result<ModelInfo> check(const GgufWriter& writer) {
  testing::MemFileSystem files;
  files.add("f.gguf", writer.bytes());
  const auto file = TRY(GgufFile::open("f.gguf", files));
  return check_model(*file);
}

void set_zeros(
    GgufWriter& writer, const char* name, DType type, const std::vector<std::int64_t>& shape
) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  const auto bytes = static_cast<std::size_t>(tensor::row_bytes(type, count));
  writer.set_tensor(name, type, shape, std::string(bytes, '\0'));
}

constexpr const char* kNames[] = {
    "gemma3", "gpt-oss", "llama", "phi3", "qwen2", "qwen2moe", "qwen3", "qwen3moe"
};

TEST(Families, TakeTheirFiles) {
  for (const char* name : kNames) {
    const auto info = check(testing::tiny_model(tiny(name)));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->architecture, name);
    EXPECT_TRUE(info->warnings.empty()) << info->warnings[0];
  }
}

// Every tensor of a file is asked for: without it, misshapen or of a type for no weights, the file
// is refused by the tensor's name.
TEST(Families, MissEveryTensor) {
  for (const char* name : kNames) {
    const GgufWriter whole = testing::tiny_model(tiny(name));
    testing::MemFileSystem files;
    files.add("f.gguf", whole.bytes());
    const auto file = GgufFile::open("f.gguf", files);
    ASSERT_TRUE(file);
    for (const TensorInfo& info : (*file)->tensors()) {
      if (info.name.starts_with("blk.0.")) continue;  // as blk.1
      SCOPED_TRACE(std::string(name) + " " + info.name);
      const bool optional = info.name == "output.weight" || info.name.ends_with("exps.bias") ||
                            info.name.ends_with("gate_inp.bias") ||
                            info.name.ends_with("attn_output.bias");
      GgufWriter without = whole;
      without.remove_tensor(info.name);
      const auto missing = check(without);
      ASSERT_EQ(missing.has_value(), optional);
      if (!optional) {
        EXPECT_NE(missing.error().message.find(info.name), std::string::npos);
      }

      GgufWriter misshapen = whole;
      std::vector<std::int64_t> shape = info.shape;
      shape.back() += 1;
      set_zeros(misshapen, info.name.c_str(), info.type, shape);
      const auto wrong = check(misshapen);
      ASSERT_FALSE(wrong);
      EXPECT_EQ(wrong.error().code, Code::kBadFile);
      const bool embedding = info.name == "token_embd.weight";  // then its vocabulary is another
      if (!embedding) {
        EXPECT_NE(wrong.error().message.find(info.name), std::string::npos);
      }

      GgufWriter mistyped = whole;
      set_zeros(mistyped, info.name.c_str(), DType::kI32, info.shape);
      const auto type = check(mistyped);
      ASSERT_FALSE(type);
      EXPECT_NE(type.error().message.find(info.name), std::string::npos);
      EXPECT_NE(type.error().message.find("I32"), std::string::npos) << type.error().message;
    }
  }
}

struct Spoiled {
  const char* architecture;
  void (*spoil)(GgufWriter&);
  Code code;
  const char* piece;
};

const Spoiled kContradictions[] = {
    {"qwen3moe",
     [](GgufWriter& w) { w.set_unsigned("qwen3moe.expert_used_count", 5); },
     Code::kBadFile,
     "qwen3moe.expert_used_count is 5 but qwen3moe.expert_count is 4"},
    {"qwen3moe",
     [](GgufWriter& w) { w.set_unsigned("qwen3moe.expert_used_count", 0); },
     Code::kBadFile,
     "qwen3moe.expert_used_count is 0"},
    {"qwen3moe",
     [](GgufWriter& w) { w.remove_key("qwen3moe.expert_used_count"); },
     Code::kBadFile,
     "missing metadata qwen3moe.expert_used_count"},
    {"qwen3moe",
     [](GgufWriter& w) { w.set_unsigned("qwen3moe.expert_count", 3); },
     Code::kBadFile,
     "blk.0.ffn_gate_inp.weight has shape [64, 4], expected [64, 3]"},
    {"qwen3moe",
     [](GgufWriter& w) { w.remove_key("qwen3moe.expert_count"); },
     Code::kBadFile,
     "missing metadata qwen3moe.expert_count"},
    {"qwen3moe",
     [](GgufWriter& w) { w.set_unsigned("qwen3moe.expert_feed_forward_length", 48); },
     Code::kBadFile,
     "blk.0.ffn_gate_exps.weight has shape [64, 96, 4], expected [64, 48, 4]"},
    {"qwen3moe",
     [](GgufWriter& w) { w.set_unsigned("qwen3moe.expert_gating_func", 2); },
     Code::kUnsupported,
     "qwen3moe.expert_gating_func is 2"},
    {"qwen2moe",
     [](GgufWriter& w) { w.set_unsigned("qwen2moe.expert_shared_feed_forward_length", 16); },
     Code::kBadFile,
     "blk.0.ffn_gate_shexp.weight has shape [64, 32], expected [64, 16]"},
    {"gemma3",
     [](GgufWriter& w) { w.set_unsigned("gemma3.attention.sliding_window", 0); },
     Code::kBadFile,
     "gemma3.attention.sliding_window is 0"},
    {"gemma3",
     [](GgufWriter& w) { w.remove_key("gemma3.attention.sliding_window"); },
     Code::kBadFile,
     "missing metadata gemma3.attention.sliding_window"},
    {"gemma3",
     [](GgufWriter& w) {
       const std::vector<std::int32_t> flags = {1, 0, 1};
       w.set_integers("gemma3.attention.sliding_window_pattern", flags);
     },
     Code::kBadFile,
     "gemma3.attention.sliding_window_pattern has 3 items, expected one for each of 2 layers"},
    {"gemma3",
     [](GgufWriter& w) { w.set_float("gemma3.attn_logit_softcapping", 50); },
     Code::kUnsupported,
     "gemma3.attn_logit_softcapping: capped logits"},
    {"gpt-oss",
     [](GgufWriter& w) { w.set_unsigned("gpt-oss.rope.dimension_count", 32); },
     Code::kBadFile,
     "gpt-oss.rope.dimension_count 32 is odd or larger than the head size 16"},
    {"phi3",
     [](GgufWriter& w) { w.set_unsigned("phi3.attention.head_count_kv", 1); },
     Code::kBadFile,
     "blk.0.attn_qkv.weight has shape [64, 128], expected [64, 96]"},
    {"qwen3",
     [](GgufWriter& w) { w.set_unsigned("qwen3.attention.key_length", 32); },
     Code::kUnsupported,
     "heads of 32 key and 16 value dimensions"},
};

TEST(Families, RefuseContradictions) {
  for (const Spoiled& c : kContradictions) {
    SCOPED_TRACE(c.piece);
    TinyModelOptions options = tiny(c.architecture);
    if (std::string_view(c.architecture) == "qwen3") options.head_dim = 16;
    GgufWriter writer = testing::tiny_model(options);
    c.spoil(writer);
    const auto info = check(writer);
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code, c.code);
    EXPECT_EQ(info.error().message.find("f.gguf: "), 0u) << info.error().message;
    EXPECT_NE(info.error().message.find(c.piece), std::string::npos) << info.error().message;
  }
}

// A mixture reads its router, its attention and two of four experts for a token.
TEST(Families, CountTheExpertsThatAreUsed) {
  const auto info = check(testing::tiny_model(tiny("qwen3moe")));
  ASSERT_TRUE(info) << info.error().message;
  const std::int64_t attention = 64 * (64 + 32 + 32) + 64 * 64;
  const std::int64_t layer = attention + 64 * 4 + 2 * 3 * 64 * 96;
  const std::int64_t output = 64 * 259;
  EXPECT_EQ(info->ops_per_token, 2 * (2 * layer + output));
  const std::int64_t norms = 2 * (64 + 64 + 16 + 16) + 64;
  EXPECT_EQ(info->read_bytes_per_token, 4 * (2 * layer + output + norms + 64));
  EXPECT_EQ(info->parameters, 2 * (layer + 2 * 3 * 64 * 96) + 2 * output + norms);
}

TEST(Families, WindowsByListAndByPeriod) {
  const auto windowed = [](GgufWriter writer) {
    testing::MemFileSystem files;
    files.add("f.gguf", writer.bytes());
    const auto file = GgufFile::open("f.gguf", files);
    const auto spec = gemma3_spec(**file);
    EXPECT_TRUE(spec) << spec.error().message;
    return spec->windowed;
  };
  TinyModelOptions options = tiny("gemma3");
  options.layers = 7;
  using Flags = std::vector<bool>;
  GgufWriter writer = testing::tiny_model(options);
  EXPECT_EQ(windowed(writer), (Flags{true, true, true, true, true, false, true}));
  writer.set_unsigned("gemma3.attention.sliding_window_pattern", 2);
  EXPECT_EQ(windowed(writer), (Flags{true, false, true, false, true, false, true}));
  const std::vector<std::int32_t> flags = {0, 0, 1, 1, 0, 0, 1};
  writer.set_integers("gemma3.attention.sliding_window_pattern", flags);
  EXPECT_EQ(windowed(writer), (Flags{false, false, true, true, false, false, true}));
}

// Any value of any key: refused with a reason, or a model that runs.
TEST(Families, RunOrRefuseWhateverTheirKeysSay) {
  tensor::ComputePool pool(1);
  const auto backend = tensor::make_fast_backend(pool, tensor::best_isa());
  int ran = 0;
  int refused = 0;
  for (const char* name : kNames) {
    TinyModelOptions options = tiny(name);
    options.embedding = 32;
    options.feed_forward = 32;
    const GgufWriter whole = testing::tiny_model(options);
    testing::MemFileSystem files;
    files.add("f.gguf", whole.bytes());
    const auto file = GgufFile::open("f.gguf", files);
    ASSERT_TRUE(file);
    for (const GgufKey& entry : (*file)->metadata()) {
      if (!entry.key.starts_with(name)) continue;
      for (int kind = 0; kind < 9; ++kind) {
        SCOPED_TRACE(std::string(entry.key) + " " + std::to_string(kind));
        GgufWriter spoiled = whole;
        constexpr std::uint32_t kValues[] = {0, 1, 3, 7, 1u << 20, UINT32_MAX};
        if (kind < 6) spoiled.set_unsigned(entry.key, kValues[kind]);
        if (kind == 6) spoiled.remove_key(entry.key);
        if (kind == 7) spoiled.set_string(entry.key, "no");
        if (kind == 8) spoiled.set_float(entry.key, -0.5f);
        files.add("s.gguf", spoiled.bytes());
        const auto other = GgufFile::open("s.gguf", files);
        ASSERT_TRUE(other);
        LoadOptions load_options;
        load_options.context_max = 64;
        auto model = load_model(**other, *backend, load_options);
        if (!model) {
          EXPECT_EQ(model.error().message.find("s.gguf: "), 0u) << model.error().message;
          ++refused;
          continue;
        }
        auto runner = testing::ModelRunner::make(**model, 16);
        ASSERT_TRUE(runner);
        const std::vector<TokenId> tokens = {1, 2, 3};
        const auto most = static_cast<std::size_t>((*model)->info().context_length);
        runner->run_all(std::span(tokens).first(std::min(most, tokens.size())), 2);
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 100);
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace artery::model
