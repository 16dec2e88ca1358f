// Prefix hits of `eval` and `eval --compare` on a model with sliding windows, every bit of whose
// logits depends on all entries that its layers may read.

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "cli/eval_compare.h"
#include "cli/eval_runner.h"
#include "testing/hash_model.h"
#include "testing/seq_random.h"
#include "testing/window_model.h"

namespace artery::cli {
namespace {

constexpr std::int64_t kVocab = 61;
constexpr int kWindow = 20;

testing::WindowModel toy() {
  return {kVocab, 512, "wgwg", kWindow};
}  // a row depends on 38 before it

std::vector<TokenId> prompt_of(std::int64_t count) {
  std::vector<TokenId> out;
  testing::SeqRandom text(7);
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<TokenId>(text.between(0, kVocab - 1)));
  return out;
}

EvalResult run_one(
    model::Model& model, const EvalSettings& settings, const std::vector<EvalCase>& cases
) {
  auto runner = EvalRunner::make(model, settings, 1 << 16);
  EXPECT_TRUE(runner);
  EvalResult last;
  for (const EvalCase& wanted : cases) {
    const auto started = (*runner)->start(1, wanted);
    EXPECT_TRUE(started) << started.error().message;
    while (!(*runner)->is_idle())
      for (auto& [ticket, result] : (*runner)->step()) last = std::move(result);
  }
  return last;
}

EvalCase case_of(std::int64_t tokens, std::int64_t hit) {
  EvalCase wanted;
  wanted.tokens = prompt_of(tokens);
  wanted.prompt_count = wanted.tokens.size();
  wanted.rows = {0, 70, tokens - 1};
  wanted.greedy = 5;
  wanted.hit = hit;
  return wanted;
}

TEST(EvalHits, RebuiltWindowsAreExact) {
  testing::WindowModel model = toy();
  const EvalResult cold = run_one(model, {}, {case_of(120, 0)});
  for (const EvalSettings& settings : {
           EvalSettings{.chunk = 7, .windows_gone = true},
           EvalSettings{.windows_gone = true, .swa_replay = 38},  // all that matter
           EvalSettings{.cache = true, .windows_gone = true},
       }) {
    const EvalResult hit = run_one(model, settings, {case_of(120, 100)});
    EXPECT_EQ(hit.cached_tokens, 48);  // 96 - 38, down to a page
    EXPECT_EQ(hit.logits, cold.logits);
    EXPECT_EQ(hit.greedy_tokens, cold.greedy_tokens);
  }
  EvalCase again = case_of(120, 0);
  again.rows = {118, 119};
  const EvalResult plain = run_one(model, {}, {again});
  const EvalResult cached =
      run_one(model, {.cache = true, .windows_gone = true}, {case_of(110, 0), again, again});
  EXPECT_EQ(cached.cached_tokens, 64);  // 112 - 38, down to a page
  EXPECT_EQ(cached.logits, plain.logits);
}

TEST(EvalHits, AReplayIsNot) {
  testing::WindowModel model = toy();
  const EvalResult cold = run_one(model, {}, {case_of(120, 0)});
  const EvalResult hit =
      run_one(model, {.windows_gone = true, .swa_replay = 20}, {case_of(120, 100)});
  EXPECT_EQ(hit.cached_tokens, 64);  // 96 - 20, down to a page
  EXPECT_NE(hit.logits, cold.logits);
  const auto before = static_cast<std::ptrdiff_t>(2 * kVocab);  // rows 0 and 70 were before the hit
  EXPECT_TRUE(std::equal(cold.logits.begin(), cold.logits.begin() + before, hit.logits.begin()));
}

HitDifference compare(model::Model& model, std::string_view ways, HitCase wanted, int chunk = 16) {
  const auto settings = parse_comparison(ways, 20);
  EXPECT_TRUE(settings);
  auto comparer = HitComparer::make(model, *settings, chunk);
  EXPECT_TRUE(comparer);
  auto out = (*comparer)->run(wanted);
  EXPECT_TRUE(out) << out.error().message;
  return *(*comparer)->run(wanted);  // nothing of the first run is in the way
}

TEST(HitCompare, ExactIsColdAndReplayIsNot) {
  testing::WindowModel model = toy();
  const HitCase wanted{prompt_of(120), 100, 8};
  const HitDifference exact = compare(model, "exact,cold", wanted);
  EXPECT_EQ(exact.hit, 96);
  ASSERT_EQ(exact.kl.size(), 24u);
  for (const double kl : exact.kl) EXPECT_EQ(kl, 0);
  EXPECT_EQ(exact.top1_equal, 24);
  EXPECT_EQ(exact.greedy, 8);
  EXPECT_EQ(exact.greedy_equal, 8);
  EXPECT_EQ(exact.rows_before[0], 48);
  EXPECT_EQ(exact.rows_before[1], 96);
  const HitDifference replay = compare(model, "exact,replay", wanted, 7);
  EXPECT_EQ(replay.rows_before[1], 32);
  EXPECT_GT(replay.kl[0], 0.01);
  EXPECT_LT(replay.top1_equal, 24);
  EXPECT_LT(replay.greedy_equal, 8);
  // So many rows are all that matter.
  for (const double kl : compare(model, "cold,replay:38", wanted).kl) EXPECT_EQ(kl, 0);
}

TEST(HitCompare, WithoutWindowsAllWaysAreOne) {
  testing::HashModel model(kVocab, 512);
  const HitDifference out = compare(model, "cold,replay:1", {prompt_of(50), 50, 0});
  EXPECT_EQ(out.hit, 48);  // one token is left to compute
  EXPECT_EQ(out.kl, (std::vector<double>{0, 0}));
  EXPECT_EQ(out.rows_before[1], 0);
}

TEST(HitCompare, RefusesWhatHasNoHit) {
  testing::WindowModel model = toy();
  const auto comparer = HitComparer::make(model, *parse_comparison("exact,cold", 128), 64);
  EXPECT_EQ((*comparer)->run({prompt_of(16), 16, 0}).error().field, "hit");
  EXPECT_EQ((*comparer)->run({prompt_of(40), 41, 0}).error().field, "hit");
  EXPECT_EQ((*comparer)->run({prompt_of(510), 64, 8}).error().code, Code::kContextLength);
  EXPECT_TRUE((*comparer)->run({prompt_of(510), 64, 3}));
}

TEST(HitCompare, NamesOfWays) {
  EXPECT_EQ((*parse_comparison("exact,replay", 128))[1].name, "replay:128");
  EXPECT_EQ((*parse_comparison("cold,replay:64", 128))[1].rows, 64);
  for (const char* bad :
       {"",
        "exact",
        "exact,",
        "exact,warm",
        "exact,replay:0",
        "exact,replay:1x",
        "exact,cold,replay",
        "replay:-1,cold"}) {
    const auto parsed = parse_comparison(bad, 128);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_NE(parsed.error().message.find("exact,replay"), std::string::npos);
  }
}

TEST(HitCompare, DivergenceOfKnownDistributions) {
  // p = (1/2, 1/2), q = (3/4, 1/4): ln(2/3)/2 + ln(2)/2.
  const std::vector<float> p = {1, 1};
  const std::vector<float> q = {2 + std::log(3.0F), 2};
  EXPECT_NEAR(kl_divergence(p, q), 0.5 * std::log(4.0 / 3.0), 1e-7);
  EXPECT_NEAR(kl_divergence(q, p), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
  EXPECT_EQ(kl_divergence(q, q), 0);
}

TEST(CompareReport, TakesEvalsLines) {
  testing::WindowModel model = toy();
  const auto settings = *parse_comparison("exact,replay:20", 128);
  const auto comparer = HitComparer::make(model, settings, 32);
  std::string tokens;
  for (const TokenId token : prompt_of(100)) tokens += fmt::format("{},", token);
  tokens.pop_back();
  std::istringstream in(fmt::format(
      "{{\"id\":\"both\",\"tokens\":[{0}],\"force\":[1,2],\"greedy\":4}}\n\n"
      "{{\"id\":\"one\",\"tokens\":[{0}],\"hit\":70}}\n"
      "{{\"id\":\"short\",\"tokens\":[1,2,3]}}\nnonsense\n",
      tokens
  ));
  CompareReport report(settings, kVocab);
  report.add_all(in, **comparer);
  EXPECT_TRUE(report.check());
  const boost::json::object out = report.json();
  const auto& each = out.at("each").as_array();
  ASSERT_EQ(each.size(), 3u);
  EXPECT_EQ(each[0].at("hit").as_int64(), 48);
  EXPECT_EQ(each[0].at("rows").as_int64(), 54);
  EXPECT_EQ(each[1].at("hit").as_int64(), 96);
  EXPECT_EQ(each[1].at("greedy_tokens").as_int64(), 4);
  EXPECT_EQ(each[2].at("hit").as_int64(), 64);
  EXPECT_EQ(each[2].at("greedy_tokens").as_int64(), 32);
  EXPECT_EQ(out.at("errors").as_array().size(), 2u);
  EXPECT_EQ(out.at("rows").as_int64(), 54 + 6 + 36);
  EXPECT_GT(out.at("kl").at("max").as_double(), 0);
  // 48 - 38 and 48 - 20 both begin at 0 and 16; 96: 48 and 64; 64: 16 and 32.
  EXPECT_EQ(out.at("rows_saved").as_int64(), 16 + 16 + 16);
  EXPECT_NE(report.text().find("rows before the hits"), std::string::npos);
  EXPECT_FALSE(CompareReport(settings, kVocab).check());
}

}  // namespace
}  // namespace artery::cli
