// The fast path against the reference path on SmolLM2, over all positions of the golden prompts:
// KL(reference || fast), mean and p99, not above llama.cpp's distance from the truth (README of
// golden/models). The reference path stands for the truth: model_logits_test holds it to that.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "golden_model.h"
#include "testing/model_runner.h"

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

TEST(Kl, FastPathOnSmolLM2IsNotFartherThanLlamaCpp) {
  const auto golden = find_golden_model("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf");
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

}  // namespace
}  // namespace artery::golden
