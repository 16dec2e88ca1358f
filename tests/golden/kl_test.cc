// The fast path against the reference path, over all positions of the golden prompts:
// KL(reference || fast), mean and p99, not above llama.cpp's distance from the truth (README of
// golden/models). The reference path stands for the truth: model_logits_test holds it to that.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "golden_model.h"
#include "testing/model_runner.h"
#include "testing/npz.h"

namespace artery::golden {
namespace {

double log_sum(std::span<const float> row) {
  const double top = static_cast<double>(*std::ranges::max_element(row));
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - top);
  return top + std::log(sum);
}

double kl(std::span<const float> truth, std::span<const float> other) {
  const double truth_sum = log_sum(truth);
  const double other_sum = log_sum(other);
  double out = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double log_p = static_cast<double>(truth[i]) - truth_sum;
    out += std::exp(log_p) * (log_p - (static_cast<double>(other[i]) - other_sum));
  }
  return out;
}

std::ptrdiff_t best(std::span<const float> row) {
  return std::ranges::max_element(row) - row.begin();
}

struct Distances {
  std::vector<double> kl;
  std::int64_t agree = 0;
  double mean() const {
    double sum = 0;
    for (const double value : kl) sum += value;
    return sum / static_cast<double>(kl.size());
  }
  // Linear interpolation between closest ranks, as numpy.percentile does.
  double percentile(double share) {
    std::ranges::sort(kl);
    const double rank = share * static_cast<double>(kl.size() - 1);
    const auto low = static_cast<std::size_t>(rank);
    const std::size_t high = std::min(low + 1, kl.size() - 1);
    return kl[low] + (rank - static_cast<double>(low)) * (kl[high] - kl[low]);
  }
};

// Against the reference path at all positions.
void expect_near_reference(const std::string& folder, const std::string& weights) {
  const auto golden = find_golden_model(folder, weights);
  if (!golden) GTEST_SKIP() << golden.error().message;
  // Over a handful of short prompts the mean and the 99th percentile say nothing.
  if (kSanitized && !run_long_tests()) GTEST_SKIP() << "too slow under a sanitizer";
  const auto reference = ReferenceLogits::of(*golden);
  const auto fast = load_golden(*golden, Numerics::kFast);
  ASSERT_TRUE(reference) << reference.error().message;
  ASSERT_TRUE(fast) << fast.error().message;
  auto fast_runner = testing::ModelRunner::make(*fast->model, 2048);
  ASSERT_TRUE(fast_runner) << fast_runner.error().message;
  const auto vocab = static_cast<std::size_t>(fast_runner->vocab());
  Distances distances;
  for (const Prompt& prompt : chosen_prompts(*golden, kShortTokens)) {
    const auto& truth = (*reference)->at_all_positions(prompt);
    const auto ours = fast_runner->run_all(prompt.ids, kChunk);
    for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
      const auto row = std::span(truth).subspan(i * vocab, vocab);
      const auto other = std::span(ours).subspan(i * vocab, vocab);
      distances.kl.push_back(kl(row, other));
      distances.agree += best(row) == best(other) ? 1 : 0;
    }
  }
  const double mean = distances.mean();
  const double p99 = distances.percentile(0.99);
  const double agreement =
      static_cast<double>(distances.agree) / static_cast<double>(distances.kl.size());
  std::printf(
      "%zu positions: KL mean %.3e p99 %.3e max %.3e, same best token %.2f %% "
      "(llama.cpp: mean %.3e p99 %.3e, %.2f %%)\n",
      distances.kl.size(),
      mean,
      p99,
      distances.kl.back(),
      100 * agreement,
      golden->peer.kl_mean,
      golden->peer.kl_p99,
      100 * golden->peer.top1_agreement
  );
  EXPECT_LE(mean, golden->peer.kl_mean);
  EXPECT_LE(p99, golden->peer.kl_p99);
  EXPECT_GT(mean, 0) << "the same numbers twice: the fast path was not run";
}

TEST(Kl, FastPathOnSmolLM2IsNotFartherThanLlamaCpp) {
  expect_near_reference("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf");
}

TEST(Kl, FastPathOnGemmaIsNotFartherThanLlamaCpp) {
  if (!run_long_tests()) GTEST_SKIP() << "long: set ARTERY_TEST_LONG=1";
  expect_near_reference("gemma3", "gemma-3-270m-q4_k_m.gguf");
}

// KL of the truth's 64 best tokens, all others as one; never above the whole one.
double coarse_kl(
    std::span<const std::int64_t> ids,
    std::span<const double> logits,
    double logsumexp,
    std::span<const float> row
) {
  const double own_sum = log_sum(row);
  double out = 0;
  double rest = 1;
  double own_rest = 1;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double log_p = logits[i] - logsumexp;
    const double log_q = static_cast<double>(row[static_cast<std::size_t>(ids[i])]) - own_sum;
    out += std::exp(log_p) * (log_p - log_q);
    rest -= std::exp(log_p);
    own_rest -= std::exp(log_q);
  }
  return rest > 1e-9 && own_rest > 0 ? out + rest * std::log(rest / own_rest) : out;
}

std::vector<std::int64_t> ids_of(const NpyArray& array) {
  std::vector<std::int64_t> out;
  if (const auto ids = array.int32()) out.assign(ids->begin(), ids->end());
  if (const auto ids = array.int64()) out.assign(ids->begin(), ids->end());
  return out;
}

// Against the float64 truth itself, at its stored positions.
void expect_near_truth(const std::string& folder, const std::string& weights) {
  const auto golden = find_golden_model(folder, weights);
  if (!golden) GTEST_SKIP() << golden.error().message;
  if (kSanitized) GTEST_SKIP() << "too slow under a sanitizer";
  const auto npz = testing::NpzFile::open(golden->folder + "/logits.npz");
  ASSERT_TRUE(npz) << npz.error().message;
  const auto fast = load_golden(*golden, Numerics::kFast);
  ASSERT_TRUE(fast) << fast.error().message;
  auto runner = testing::ModelRunner::make(*fast->model, 2048);
  ASSERT_TRUE(runner) << runner.error().message;
  const auto vocab = static_cast<std::size_t>(runner->vocab());
  Distances distances;
  for (const Prompt& prompt : golden->prompts) {
    const auto ours = runner->run(prompt.ids, prompt.positions, kChunk);
    for (std::size_t i = 0; i < prompt.positions.size(); ++i) {
      const std::string key = prompt.name + "." + std::to_string(prompt.positions[i]) + ".";
      const auto ids = npz->array(key + "top_ids");
      const auto logits = npz->array(key + "top_logits");
      const auto sum = npz->array(key + "logsumexp");
      ASSERT_TRUE(ids && logits && sum) << key;
      const auto row = std::span(ours).subspan(i * vocab, vocab);
      const auto tokens = ids_of(*ids);
      const auto values = logits->float64().value();
      distances.kl.push_back(coarse_kl(tokens, values, sum->float64().value()[0], row));
      distances.agree += best(row) == tokens[0] ? 1 : 0;
    }
  }
  const double mean = distances.mean();
  const double p99 = distances.percentile(0.99);
  std::printf(
      "%zu positions: KL mean %.3e p99 %.3e (llama.cpp over all positions: %.3e, %.3e), %lld "
      "agree\n",
      distances.kl.size(),
      mean,
      p99,
      golden->peer.kl_mean,
      golden->peer.kl_p99,
      static_cast<long long>(distances.agree)
  );
  EXPECT_LE(mean, golden->peer.kl_mean);
  EXPECT_GT(mean, 0);
}

// A file of Q5_0, Q8_0, Q4_K and Q6_K.
TEST(Kl, FastPathOnQwenIsNotFartherFromTheTruthThanLlamaCpp) {
  expect_near_truth("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
}

// The same types; two texts longer than its windows.
TEST(Kl, FastPathOnGemmaIsNotFartherFromTheTruthThanLlamaCpp) {
  expect_near_truth("gemma3", "gemma-3-270m-q4_k_m.gguf");
}

}  // namespace
}  // namespace artery::golden
