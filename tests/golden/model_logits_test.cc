// `--numerics reference` against the float64 truth of golden/models: logits at every stored
// position to 1e-5 of their spread.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "base/npy.h"
#include "golden_model.h"
#include "testing/model_runner.h"
#include "testing/npz.h"

namespace artery::golden {
namespace {

constexpr double kShareOfSpread = 1e-5;

// The worst |difference| / standard deviation of the vocabulary's logits so far.
struct Worst {
  double share = 0;
  std::string where;
  void see(double share_here, const std::string& place) {
    if (share_here <= share) return;
    share = share_here;
    where = place;
  }
};

class Comparison {
 public:
  Comparison(const testing::NpzFile& npz, std::int64_t vocab) : npz_(npz), vocab_(vocab) {
    sample_ids_ = to_ids("sample_ids");
  }

  void position(const Prompt& prompt, std::int32_t position, std::span<const float> row) {
    const std::string key = prompt.name + "." + std::to_string(position) + ".";
    const auto moments = npz_.array(key + "moments");
    ASSERT_TRUE(moments) << moments.error().message;
    const double deviation = moments->float64().value()[1];
    ASSERT_GT(deviation, 0);
    compare(key + "top_logits", to_ids(key + "top_ids"), row, deviation);
    compare(key + "sample_logits", sample_ids_, row, deviation);
    const bool last = position + 1 == static_cast<std::int32_t>(prompt.ids.size());
    if (last && !prompt.full_logits.empty()) full(prompt.full_logits, row, deviation);
    check_logsumexp(key, row);
  }

  const Worst& worst() const { return worst_; }
  std::int64_t compared() const { return compared_; }

 private:
  std::vector<std::int64_t> to_ids(const std::string& key) const {
    std::vector<std::int64_t> out;
    const auto found = npz_.array(key);
    if (!found) {
      ADD_FAILURE() << found.error().message;
      return out;
    }
    const NpyArray& array = *found;
    if (const auto ids = array.int32()) out.assign(ids->begin(), ids->end());
    if (const auto ids = array.int64()) out.assign(ids->begin(), ids->end());
    EXPECT_FALSE(out.empty()) << "ids of another type";
    return out;
  }

  void compare(
      const std::string& key,
      const std::vector<std::int64_t>& ids,
      std::span<const float> row,
      double deviation
  ) {
    const auto array = npz_.array(key);
    ASSERT_TRUE(array) << array.error().message;
    const auto truth = array->float64();
    ASSERT_TRUE(truth) << truth.error().message;
    ASSERT_EQ(truth->size(), ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const double ours = static_cast<double>(row[static_cast<std::size_t>(ids[i])]);
      worst_.see(std::abs(ours - (*truth)[i]) / deviation, key);
      ++compared_;
    }
  }

  void full(const std::string& path, std::span<const float> row, double deviation) {
    const auto array = NpyArray::read(system_file_system(), path);
    ASSERT_TRUE(array) << array.error().message;
    const auto truth = array->float32().value();
    ASSERT_EQ(static_cast<std::int64_t>(truth.size()), vocab_);
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const double ours = static_cast<double>(row[i]);
      worst_.see(std::abs(ours - static_cast<double>(truth[i])) / deviation, path);
      ++compared_;
    }
  }

  void check_logsumexp(const std::string& key, std::span<const float> row) {
    const auto stored = npz_.array(key + "logsumexp");
    ASSERT_TRUE(stored) << stored.error().message;
    const double top = static_cast<double>(*std::ranges::max_element(row));
    double sum = 0;
    for (const float value : row) sum += std::exp(static_cast<double>(value) - top);
    EXPECT_NEAR(top + std::log(sum), stored->float64().value()[0], 1e-5) << key;
  }

  const testing::NpzFile& npz_;
  const std::int64_t vocab_;
  std::vector<std::int64_t> sample_ids_;
  Worst worst_;
  std::int64_t compared_ = 0;
};

// Logits of a prompt at its stored positions, [positions, vocab].
using Logits = std::function<std::vector<float>(const Prompt&)>;

void expect_truth(
    const GoldenModel& golden, std::size_t tokens_max, std::size_t vocab, const Logits& logits_of
) {
  const auto npz = testing::NpzFile::open(golden.folder + "/logits.npz");
  ASSERT_TRUE(npz) << npz.error().message;
  Comparison comparison(*npz, static_cast<std::int64_t>(vocab));
  const auto prompts = chosen_prompts(golden, tokens_max);
  ASSERT_FALSE(prompts.empty());
  for (const Prompt& prompt : prompts) {
    const auto logits = logits_of(prompt);
    for (std::size_t i = 0; i < prompt.positions.size(); ++i)
      comparison.position(prompt, prompt.positions[i], std::span(logits).subspan(i * vocab, vocab));
  }
  const Worst& worst = comparison.worst();
  std::printf(
      "%zu prompts, %lld logits, worst difference %.2e of the standard deviation (%s)\n",
      prompts.size(),
      static_cast<long long>(comparison.compared()),
      worst.share,
      worst.where.c_str()
  );
  EXPECT_LE(worst.share, kShareOfSpread) << worst.where;
}

void run_and_expect_truth(const GoldenModel& golden, std::size_t tokens_max) {
  const auto loaded = load_golden(golden, Numerics::kReference);
  ASSERT_TRUE(loaded) << loaded.error().message;
  auto runner = testing::ModelRunner::make(*loaded->model, 2048);
  ASSERT_TRUE(runner) << runner.error().message;
  const auto vocab = static_cast<std::size_t>(runner->vocab());
  expect_truth(golden, tokens_max, vocab, [&](const Prompt& prompt) {
    return runner->run(prompt.ids, prompt.positions, kChunk);
  });
}

TEST(ModelLogits, Stories260K) {
  const auto golden = find_golden_model("stories260k", "stories260K.gguf");
  if (!golden) GTEST_SKIP() << golden.error().message;
  run_and_expect_truth(*golden, kShortTokens);
}

TEST(ModelLogits, SmolLM2) {
  const auto golden = find_golden_model("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!golden) GTEST_SKIP() << golden.error().message;
  const auto reference = ReferenceLogits::of(*golden);
  ASSERT_TRUE(reference) << reference.error().message;
  constexpr std::size_t kVocab = 49152;
  expect_truth(*golden, kShortTokens, kVocab, [&](const Prompt& prompt) {
    const auto& all = (*reference)->at_all_positions(prompt);
    std::vector<float> out;
    for (const std::int32_t position : prompt.positions) {
      const auto start = all.begin() + std::ptrdiff_t{position} * std::ptrdiff_t{kVocab};
      out.insert(out.end(), start, start + std::ptrdiff_t{kVocab});
    }
    return out;
  });
}

TEST(ModelLogits, Qwen25Coder05B) {
  const auto golden =
      find_golden_model("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  if (!golden) GTEST_SKIP() << golden.error().message;
  // Four times SmolLM2 a token: without ARTERY_TEST_LONG only the shortest prompts.
  run_and_expect_truth(*golden, 7);
}

TEST(ModelLogits, Gemma3) {
  const auto golden = find_golden_model("gemma3", "gemma-3-270m-q4_k_m.gguf");
  if (!golden) GTEST_SKIP() << golden.error().message;
  // Without ARTERY_TEST_LONG only the shortest; two prompts are longer than its windows of 512.
  run_and_expect_truth(*golden, kSanitized ? 2 : 7);
}

}  // namespace
}  // namespace artery::golden
