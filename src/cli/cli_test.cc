// Small parts of the verbs: base64, lists, exit codes, fingerprint, the eval runner on a toy model.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cli/base64.h"
#include "cli/eval_runner.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/serving.h"

namespace artery::cli {
namespace {

TEST(Base64, Rfc4648Vectors) {
  const std::pair<const char*, const char*> vectors[] = {
      {"", ""},
      {"f", "Zg=="},
      {"fo", "Zm8="},
      {"foo", "Zm9v"},
      {"foob", "Zm9vYg=="},
      {"fooba", "Zm9vYmE="},
      {"foobar", "Zm9vYmFy"},
  };
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text).value(), bytes);
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(base64_decode(base64_encode(all)).value(), all);
  for (const char* wrong : {"A", "AAA", "A===", "====", "AA=A", "A A=", "AA==AAAA", "AAA\xff"})
    EXPECT_FALSE(base64_decode(wrong).has_value()) << wrong;
}

TEST(Lists, NumbersBetweenCommas) {
  EXPECT_EQ(parse_int_list("-p", "512,2048", 0, 4096).value(), (std::vector<int>{512, 2048}));
  for (const char* wrong : {"", ",", "1,x", "1,5000", "-1", "1.5"}) {
    const auto parsed = parse_int_list("-p", wrong, 0, 4096);
    ASSERT_FALSE(parsed.has_value()) << wrong;
    EXPECT_EQ(parsed.error().field, "-p");
  }
}

TEST(ExitCodes, FollowTheContract) {
  EXPECT_EQ(exit_code(Code::kInvalidArgument), 2);
  EXPECT_EQ(exit_code(Code::kBadFile), 3);
  EXPECT_EQ(exit_code(Code::kUnsupported), 3);
  EXPECT_EQ(exit_code(Code::kOutOfMemory), 4);
  for (const Code code : {Code::kNotFound, Code::kIo, Code::kInternal, Code::kUnavailable})
    EXPECT_EQ(exit_code(code), 1);
}

TEST(Fingerprint, ChangesWithWeightsAndNumericsOnly) {
  const std::string one = fingerprint("aa", "fast-1/kv-int16");
  EXPECT_EQ(one, fingerprint("aa", "fast-1/kv-int16"));
  EXPECT_NE(one, fingerprint("ab", "fast-1/kv-int16"));
  EXPECT_NE(one, fingerprint("aa", "fast-1/kv-f32"));
  EXPECT_EQ(one.size(), 15u);
}

TEST(Bytes, AreShownInUnits) {
  EXPECT_EQ(bytes_text(12), "12 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3.00 GiB");
}

// Logits of a position are a function of all tokens up to it, read back from the KV pages only: a
// wrong page, a page written twice or a row of another sequence changes them.
class PagedToy final : public model::Model {
 public:
  PagedToy() {
    info_.vocab_size = 7;
    info_.context_length = 128;
  }
  const model::ModelInfo& info() const override { return info_; }
  model::KvLayout kv_layout() const override {
    model::KvLayout layout;
    layout.groups.push_back({});
    layout.groups[0].geometry = {1, 1, 1, tensor::KvType::kF32};
    layout.groups[0].entry_bytes = 8;
    return layout;
  }
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override {
    std::size_t next = 0;
    rows += static_cast<std::int64_t>(batch.tokens.size());
    for (std::size_t s = 0; s + 1 < batch.offsets.size(); ++s)
      for (auto row = batch.offsets[s]; row < batch.offsets[s + 1]; ++row) {
        const Position at = batch.positions[static_cast<std::size_t>(row)];
        *entry(batch, s, at) = static_cast<float>(batch.tokens[static_cast<std::size_t>(row)]);
        if (next == batch.logit_rows.size() || batch.logit_rows[next] != row) continue;
        float sum = 0;
        for (Position p = 0; p <= at; ++p)
          sum = sum * 0.5f + *entry(batch, s, p) * static_cast<float>(p % 5 + 1);
        for (std::size_t v = 0; v < 7; ++v)
          logits[next * 7 + v] = std::fmod(sum * static_cast<float>(v + 2), 11.0f);
        ++next;
      }
    EXPECT_EQ(next, batch.logit_rows.size());
  }
  std::int64_t rows = 0;

 private:
  static float* entry(const model::ForwardBatch& batch, std::size_t sequence, Position at) {
    const model::PageTable& table = batch.page_tables[0];
    const auto slot = sequence * static_cast<std::size_t>(table.pages_max) +
                      static_cast<std::size_t>(at / kPageTokens);
    const std::int64_t page = table.pages[slot];
    EXPECT_NE(page, kNoPage);
    std::byte* base = batch.kv[0].base + page * batch.kv[0].geometry.page_bytes();
    return reinterpret_cast<float*>(base) + at % kPageTokens;
  }
  model::ModelInfo info_;
};

std::vector<EvalCase> toy_cases() {
  std::vector<EvalCase> cases;
  for (int c = 0; c < 6; ++c) {
    EvalCase wanted;
    for (int i = 0; i < 1 + c * 19; ++i) wanted.tokens.push_back((i * 3 + (i > 33 ? c : 0)) % 7);
    wanted.prompt_count = c == 3 ? wanted.tokens.size() - 2 : wanted.tokens.size();
    wanted.rows = {static_cast<std::int64_t>(wanted.tokens.size()) - 1, 0};
    wanted.greedy = c;
    cases.push_back(std::move(wanted));
  }
  return cases;
}

std::vector<EvalResult> run_all(
    model::Model& model, const EvalSettings& settings, const std::vector<EvalCase>& cases
) {
  auto runner = EvalRunner::make(model, settings, 1 << 10);
  EXPECT_TRUE(runner.has_value());
  std::vector<EvalResult> results(cases.size());
  std::size_t next = 0;
  while (next < cases.size() || !(*runner)->is_idle()) {
    while (next < cases.size() && (*runner)->has_room()) {
      const auto started = (*runner)->start(static_cast<std::int64_t>(next), cases[next]);
      EXPECT_TRUE(started.has_value()) << started.error().message;
      ++next;
    }
    for (auto& [ticket, result] : (*runner)->step())
      results[static_cast<std::size_t>(ticket)] = std::move(result);
  }
  return results;
}

TEST(EvalRunner, NoSettingChangesAResult) {
  PagedToy model;
  const std::vector<EvalCase> cases = toy_cases();
  const std::vector<EvalResult> plain = run_all(model, {}, cases);
  EXPECT_EQ(plain[4].greedy_tokens.size(), 4u);
  EXPECT_EQ(plain[4].logits.size(), 14u);
  for (const EvalSettings& settings : {
           EvalSettings{.batch = 3, .chunk = 5, .cache = false},
           EvalSettings{.batch = 6, .chunk = 1, .cache = false},
           EvalSettings{.batch = 1, .chunk = 16, .cache = true},
           EvalSettings{.batch = 2, .chunk = 33, .cache = true},
       }) {
    const std::vector<EvalResult> other = run_all(model, settings, cases);
    for (std::size_t c = 0; c < cases.size(); ++c) {
      EXPECT_EQ(other[c].logits, plain[c].logits) << c;
      EXPECT_EQ(other[c].greedy_tokens, plain[c].greedy_tokens) << c;
      EXPECT_EQ(other[c].margins, plain[c].margins) << c;
    }
  }
}

TEST(EvalRunner, AHitIsComputedTwiceAndGivesTheSame) {
  PagedToy model;
  std::vector<EvalCase> cases = toy_cases();
  for (EvalCase& wanted : cases)
    wanted.rows = {static_cast<std::int64_t>(wanted.tokens.size()) - 1};
  const std::vector<EvalResult> plain = run_all(model, {}, cases);
  const std::int64_t rows_plain = model.rows;
  for (EvalCase& wanted : cases)
    wanted.hit = std::min<std::int64_t>(40, static_cast<std::int64_t>(wanted.tokens.size()));
  model.rows = 0;
  const std::vector<EvalResult> hit = run_all(model, {.batch = 2, .chunk = 7}, cases);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    EXPECT_EQ(hit[c].logits, plain[c].logits) << c;
    EXPECT_EQ(hit[c].greedy_tokens, plain[c].greedy_tokens) << c;
  }
  EXPECT_EQ(hit[5].cached_tokens, 32);  // the whole pages of 40
  EXPECT_GT(model.rows, rows_plain) << "the tokens after the whole pages were computed again";
}

TEST(EvalRunner, TheCacheSavesRowsButNotThoseWanted) {
  PagedToy model;
  EvalCase wanted;
  wanted.tokens.assign(64, 3);
  wanted.prompt_count = 64;
  wanted.rows = {63};
  auto all = wanted;
  all.rows = {0, 63};
  const auto results =
      run_all(model, {.batch = 1, .chunk = 512, .cache = true}, {wanted, wanted, all});
  EXPECT_EQ(results[0].cached_tokens, 0);
  EXPECT_EQ(results[1].cached_tokens, 48);  // the last page holds the last row
  EXPECT_EQ(results[2].cached_tokens, 0);   // row 0 is wanted
  EXPECT_EQ(results[1].logits, results[0].logits);
}

TEST(EvalRunner, RefusesWhatItCannotAnswer) {
  PagedToy model;
  auto runner = EvalRunner::make(model, {}, 0);
  ASSERT_TRUE(runner.has_value());
  EvalCase wanted;
  wanted.tokens.assign(128, 1);
  wanted.prompt_count = 128;
  wanted.greedy = 2;
  EXPECT_EQ((*runner)->start(0, wanted).error().code, Code::kContextLength);
  wanted.greedy = 1;  // never fed: fits
  wanted.rows = {128};
  EXPECT_EQ((*runner)->start(0, wanted).error().field, "rows");
  wanted.rows = {127};
  wanted.hit = 129;
  EXPECT_EQ((*runner)->start(0, wanted).error().field, "hit");
  wanted.hit = 128;
  EXPECT_TRUE((*runner)->start(0, wanted).has_value());
}

}  // namespace
}  // namespace artery::cli
