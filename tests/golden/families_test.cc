// Every family against Hugging Face transformers in float64 on tiny random checkpoints
// (tools/make_family_goldens.py): the reference path to 1e-4 of the logits' spread, whole and in
// chunks, with pages taken away behind the windows; the fast path near it, and equal in chunks.

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/npy.h"
#include "golden_model.h"
#include "model/format/open.h"
#include "model/load.h"
#include "testing/model_runner.h"

namespace artery::golden {
namespace {

struct Text {
  std::vector<TokenId> ids;
  std::vector<std::int32_t> positions;
};

struct Golden {
  std::vector<Text> runs;
  std::vector<float> logits;  // of all runs' positions
};

std::string folder_of(const std::string& name) {
  return std::string(ARTERY_SOURCE_DIR) + "/tests/golden/families/" + name;
}

Result<Golden> read_golden(const std::string& name) {
  Golden out;
  const FileSystem& fs = system_file_system();
  const std::string text = TRY(fs.read(folder_of(name) + "/golden.json", std::size_t{1} << 20));
  const boost::json::value all = boost::json::parse(text);
  for (const auto& entry : all.at("runs").as_array()) {
    Text& run = out.runs.emplace_back();
    for (const auto& id : entry.at("ids").as_array()) run.ids.push_back(id.to_number<TokenId>());
    for (const auto& at : entry.at("positions").as_array())
      run.positions.push_back(at.to_number<std::int32_t>());
  }
  const auto logits = TRY(NpyArray::read(fs, folder_of(name) + "/logits.npy"));
  const auto values = TRY(logits.float32());
  out.logits.assign(values.begin(), values.end());
  return out;
}

// One served context long enough for `tokens`: LongRoPE chooses its factors by it.
Result<LoadedModel> load_family(const std::string& name, Numerics numerics, std::int64_t tokens) {
  LoadedModel out;
  const bool reference = numerics == Numerics::kReference;
  out.pool = std::make_unique<tensor::ComputePool>(2);
  out.backend = reference ? tensor::make_reference_backend(*out.pool)
                          : tensor::make_fast_backend(*out.pool, tensor::best_isa());
  // The same models as GGUF, under llama.cpp's names: make_family_goldens.py --gguf.
  const char* gguf = std::getenv("ARTERY_FAMILY_GGUF");
  const std::string path =
      gguf != nullptr ? std::string(gguf) + "/" + name + ".gguf" : folder_of(name);
  const auto file = TRY(model::open_model(path));
  model::LoadOptions options;
  options.kv_type = reference ? tensor::KvType::kF64 : tensor::KvType::kI16;
  options.context_max = tokens;
  out.model = TRY(model::load_model(*file, *out.backend, options));
  return out;
}

double spread(std::span<const float> logits) {
  const auto [low, high] = std::ranges::minmax(logits);
  return static_cast<double>(high) - static_cast<double>(low);
}

double worst(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

class Family : public ::testing::TestWithParam<const char*> {
 protected:
  // Logits of `run` under `numerics`, computed whole; those of chunks must be the same bits.
  std::vector<float> logits_of(const Text& run, Numerics numerics) {
    const auto tokens = std::ssize(run.ids);
    const auto loaded = load_family(GetParam(), numerics, tokens);
    EXPECT_TRUE(loaded) << loaded.error().message;
    if (!loaded) return {};
    auto runner = testing::ModelRunner::make(*loaded->model, tokens);
    EXPECT_TRUE(runner) << runner.error().message;
    const auto whole = runner->run(run.ids, run.positions, tokens);
    for (const std::int64_t chunk : {1, 7, 16, 33})
      EXPECT_EQ(runner->run(run.ids, run.positions, chunk), whole) << "chunks of " << chunk;
    return whole;
  }
};

TEST_P(Family, EqualsTransformersInFloat64) {
  const auto golden = read_golden(GetParam());
  ASSERT_TRUE(golden) << golden.error().message;
  const double range = spread(golden->logits);
  std::size_t at = 0;
  for (const Text& run : golden->runs) {
    const auto reference = logits_of(run, Numerics::kReference);
    const auto fast = logits_of(run, Numerics::kFast);
    ASSERT_FALSE(reference.empty());
    const auto truth = std::span(golden->logits).subspan(at, reference.size());
    at += reference.size();
    const double error = worst(reference, truth) / range;
    const double fast_error = worst(fast, truth) / range;
    std::printf("%s: reference %.1e, fast %.1e of the spread\n", GetParam(), error, fast_error);
    EXPECT_LE(error, 1e-4);
    // Activations of 16 or 8 bits; most files are BF16.
    EXPECT_LE(fast_error, 0.02);
    EXPECT_GT(fast_error, 0);
  }
  EXPECT_EQ(at, golden->logits.size());
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    Family,
    ::testing::Values(
        "gemma3",
        "gpt_oss",
        "gpt_oss_mxfp4",
        "llama3",
        "mistral",
        "mixtral",
        "phi3",
        "phi3_longrope",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe"
    ),
    [](const auto& family) { return std::string(family.param); }
);

}  // namespace
}  // namespace artery::golden
