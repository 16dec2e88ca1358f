#include "cli/hit_compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/chain_key.h"
#include "base/check.h"

namespace artery::cli {
namespace {

constexpr std::size_t kLogitBytesMax = std::size_t{64} << 20;  // of one way, at a time

std::size_t pages_for(std::size_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

Result<HitSetting> parse_setting(std::string_view text, int rows) {
  using Way = HitSetting::Way;
  if (text == "cold") return HitSetting{Way::kCold, 0, "cold"};
  if (text == "exact") return HitSetting{Way::kExact, 0, "exact"};
  if (text == "replay") return HitSetting{Way::kReplay, rows, fmt::format("replay:{}", rows)};
  constexpr std::string_view kReplay = "replay:";
  if (text.starts_with(kReplay)) {
    const std::string_view number = text.substr(kReplay.size());
    int value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool whole = error == std::errc() && end == number.data() + number.size();
    if (whole && value > 0) return HitSetting{Way::kReplay, value, std::string(text)};
  }
  return fail_field(
      "--compare",
      "'{}': two of exact, replay, replay:N (N rows, 1 or more) and cold, as in exact,replay",
      text
  );
}

std::size_t argmax(std::span<const float> row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

double log_sum(std::span<const float> row, double top) {
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit) - top);
  return std::log(sum);
}

}  // namespace

Result<std::array<HitSetting, 2>> parse_comparison(std::string_view text, int rows) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    return fail_field(
        "--compare",
        "'{}' is one way; expected two to compare, with a comma between: exact, replay, replay:N "
        "(N "
        "rows, 1 or more) or cold, as in exact,replay",
        text
    );
  }
  return std::array{
      TRY(parse_setting(text.substr(0, comma), rows)),
      TRY(parse_setting(text.substr(comma + 1), rows))
  };
}

double kl_divergence(std::span<const float> a, std::span<const float> b) {
  const double top_a = a[argmax(a)];
  const double top_b = b[argmax(b)];
  const double sum_a = log_sum(a, top_a);
  const double sum_b = log_sum(b, top_b);
  double kl = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log_a = static_cast<double>(a[i]) - top_a - sum_a;
    const double log_b = static_cast<double>(b[i]) - top_b - sum_b;
    const double p = std::exp(log_a);
    if (p > 0) kl += p * (log_a - log_b);
  }
  return std::max(0.0, kl);  // rounding only
}

Result<std::unique_ptr<HitComparer>> HitComparer::make(
    model::Model& model, const std::array<HitSetting, 2>& settings, int chunk
) {
  // A hit's pages, and for each way its own of global and of window groups. Only what is used is
  // touched.
  const auto context = static_cast<std::size_t>(model.info().context_length);
  const auto pages = static_cast<std::int64_t>(5 * pages_for(context));
  bench::KvMemory memory = TRY(bench::KvMemory::make(model.kv_layout(), pages));
  return std::unique_ptr<HitComparer>(
      new HitComparer(model, settings, static_cast<std::size_t>(chunk), std::move(memory))
  );
}

HitComparer::HitComparer(
    model::Model& model,
    const std::array<HitSetting, 2>& settings,
    std::size_t chunk,
    bench::KvMemory memory
)
    : model_(model),
      settings_(settings),
      shape_(engine::WindowShape::of(model.kv_layout())),
      chunk_(chunk),
      memory_(std::move(memory)) {}

PageId HitComparer::take() {
  const PageId page = memory_.take();
  CHECK(page != kNoPage, "each way has room for a whole context");
  return page;
}

void HitComparer::release(Run& run) {
  for (const PageId page : run.pages) memory_.release(page);
  for (const PageId page : run.window_pages) {
    if (page != kNoPage) memory_.release(page);
  }
}

HitComparer::Run HitComparer::begin(const HitSetting& setting, const Run& base, std::size_t hit)
    const {
  Run run;
  run.tokens = base.tokens;
  if (setting.way == HitSetting::Way::kCold) return run;
  run.pages = base.pages;
  for (const PageId page : run.pages) memory_.hold(page);
  run.ready = run.done = hit;
  if (!shape_) return run;
  engine::WindowShape shape = shape_;
  if (setting.way == HitSetting::Way::kReplay && setting.rows < shape.reach)
    shape.replay = setting.rows;
  run.done = static_cast<std::size_t>(shape.rebuild_from(static_cast<std::int64_t>(hit)));
  run.apart = true;
  run.window_first = run.done;
  run.window_pages.assign(run.done / kPageTokens, kNoPage);
  return run;
}

void HitComparer::advance(Run& run, std::size_t count, bool wanted, std::vector<float>& logits) {
  const std::size_t end = run.done + count;
  while (run.pages.size() < pages_for(end)) run.pages.push_back(take());
  while (run.apart && run.window_pages.size() < pages_for(end)) run.window_pages.push_back(take());
  bench::Slice slice;
  slice.tokens = std::span(run.tokens).subspan(run.done, count);
  slice.first = static_cast<Position>(run.done);
  slice.pages = run.pages;
  slice.window_pages = run.window_pages;
  slice.window_first = static_cast<Position>(run.window_first);
  slice.write_from = static_cast<Position>(run.ready);
  for (std::size_t i = 0; wanted && i < count; ++i)
    slice.logit_rows.push_back(static_cast<std::int32_t>(i));
  bench::run_forward(model_, memory_, std::span(&slice, 1), logits);
  run.done = end;
}

void HitComparer::advance_to(Run& run, std::size_t end) {
  while (run.done < end) advance(run, std::min(chunk_, end - run.done), false, logits_[0]);
}

void HitComparer::compare_rows(std::array<Run, 2>& runs, HitDifference& out) {
  const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
  const std::size_t most =
      std::clamp(kLogitBytesMax / (vocab * sizeof(float)), std::size_t{1}, chunk_);
  const std::size_t end = runs[0].tokens.size();
  while (runs[0].done < end) {
    const std::size_t count = std::min(most, end - runs[0].done);
    for (std::size_t i = 0; i < 2; ++i) advance(runs[i], count, true, logits_[i]);
    for (std::size_t row = 0; row < count; ++row) {
      const auto a = std::span<const float>(logits_[0]).subspan(row * vocab, vocab);
      const auto b = std::span<const float>(logits_[1]).subspan(row * vocab, vocab);
      out.kl.push_back(kl_divergence(a, b));
      out.top1_equal += argmax(a) == argmax(b) ? 1 : 0;
    }
  }
}

// Each goes on from its own last row, with its own tokens.
void HitComparer::compare_greedy(
    std::array<Run, 2>& runs, const HitCase& wanted, HitDifference& out
) {
  const auto vocab = static_cast<std::size_t>(model_.info().vocab_size);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::int64_t token = 0; token < wanted.greedy; ++token) {
      const auto row = std::span<const float>(logits_[i]).last(vocab);
      runs[i].tokens.push_back(static_cast<TokenId>(argmax(row)));
      if (token + 1 < wanted.greedy) advance(runs[i], 1, true, logits_[i]);
    }
  }
  out.greedy = wanted.greedy;
  const auto at = static_cast<std::ptrdiff_t>(wanted.tokens.size());
  const auto differs =
      std::mismatch(runs[0].tokens.begin() + at, runs[0].tokens.end(), runs[1].tokens.begin() + at);
  out.greedy_equal = differs.first - (runs[0].tokens.begin() + at);
}

Result<HitDifference> HitComparer::run(const HitCase& wanted) {
  const auto count = static_cast<std::int64_t>(wanted.tokens.size());
  const std::int64_t need = count + std::max<std::int64_t>(wanted.greedy - 1, 0);
  if (need > model_.info().context_length)
    return fail(
        Code::kContextLength,
        "{} tokens with their continuation exceed the context of {}",
        need,
        model_.info().context_length
    );
  if (wanted.hit < 0 || wanted.hit > count)
    return fail_field("hit", "{} is outside 0 .. {}", wanted.hit, count);
  const std::int64_t page = std::min(wanted.hit, count - 1) / kPageTokens;
  if (page < 1)
    return fail_field("hit", "a hit has whole pages of {} tokens: none fits here", kPageTokens);
  const auto hit = static_cast<std::size_t>(page * kPageTokens);
  HitDifference out;
  out.hit = page * kPageTokens;
  Run base;
  base.tokens = wanted.tokens;
  advance_to(base, hit);
  std::array<Run, 2> runs = {begin(settings_[0], base, hit), begin(settings_[1], base, hit)};
  for (std::size_t i = 0; i < 2; ++i) {
    out.rows_before[i] = static_cast<std::int64_t>(hit - runs[i].done);
    advance_to(runs[i], hit);
  }
  compare_rows(runs, out);
  compare_greedy(runs, wanted, out);
  for (Run* run : {&base, &runs[0], &runs[1]}) release(*run);
  return out;
}

}  // namespace artery::cli
