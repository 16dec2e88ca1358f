#include "cli/eval_compare.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/chain_key.h"
#include "cli/json_lines.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr std::int64_t kGreedy = 32;

struct Summary {
  std::int64_t rows = 0, top1_equal = 0, greedy = 0, greedy_equal = 0;
  std::array<std::int64_t, 2> rows_before = {};
  double mean = 0, p50 = 0, p99 = 0, max = 0;

  double top1() const { return share(top1_equal, rows); }
  double agreement() const { return share(greedy_equal, greedy); }
  static double share(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 1 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

// The smallest value that at least so much of all are not above.
double quantile(const std::vector<double>& sorted, double share) {
  const auto count = static_cast<double>(sorted.size());
  const auto at = static_cast<std::size_t>(std::max(0.0, std::ceil(share * count) - 1));
  return sorted[std::min(at, sorted.size() - 1)];
}

void add_to(Summary& sum, const HitDifference& one) {
  sum.rows += static_cast<std::int64_t>(one.kl.size());
  sum.top1_equal += one.top1_equal;
  sum.greedy += one.greedy;
  sum.greedy_equal += one.greedy_equal;
  for (std::size_t i = 0; i < 2; ++i) sum.rows_before[i] += one.rows_before[i];
}

void add_kl(Summary& sum, std::vector<double> kl) {
  if (kl.empty()) return;
  std::sort(kl.begin(), kl.end());
  sum.mean = std::accumulate(kl.begin(), kl.end(), 0.0) / static_cast<double>(kl.size());
  sum.p50 = quantile(kl, 0.5);
  sum.p99 = quantile(kl, 0.99);
  sum.max = kl.back();
}

json::object to_json(const Summary& sum) {
  return {
      {"rows", sum.rows},
      {"kl", {{"mean", sum.mean}, {"p50", sum.p50}, {"p99", sum.p99}, {"max", sum.max}}},
      {"top1_agreement", sum.top1()},
      {"greedy_tokens", sum.greedy},
      {"greedy_agreement", sum.agreement()},
      {"rows_before", {sum.rows_before[0], sum.rows_before[1]}},
  };
}

}  // namespace

CompareReport::CompareReport(std::array<HitSetting, 2> settings, std::int64_t vocab_size)
    : settings_(std::move(settings)), vocab_size_(vocab_size) {}

void CompareReport::add_all(std::istream& in, HitComparer& comparer) {
  std::string text;
  while (std::getline(in, text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    json::value id;
    if (const Result<> added = add(text, id, comparer); !added)
      errors_.push_back(error_line(id, added.error()));
  }
}

Result<> CompareReport::add(std::string_view line, json::value& id, HitComparer& comparer) {
  const JsonLine fields = TRY(JsonLine::parse(line));
  id = fields.id();
  HitCase wanted;
  wanted.tokens = TRY(fields.ids("tokens", vocab_size_));
  if (wanted.tokens.empty()) return fail_field("tokens", "is missing or empty");
  const auto prompt = static_cast<std::int64_t>(wanted.tokens.size());
  const std::vector<TokenId> forced = TRY(fields.ids("force", vocab_size_));
  wanted.tokens.insert(wanted.tokens.end(), forced.begin(), forced.end());
  wanted.greedy = TRY(fields.integer("greedy", kGreedy));
  if (wanted.greedy < 0) return fail_field("greedy", "must be 0 or more");
  std::set<std::int64_t> hits;
  if (fields.find("hit") != nullptr) {
    hits.insert(TRY(fields.integer("hit", 0)));
  } else {
    const std::int64_t last = (prompt - 1) / kPageTokens * kPageTokens;
    hits.insert(last);
    hits.insert(std::max<std::int64_t>(prompt / 2 / kPageTokens * kPageTokens, kPageTokens));
  }
  for (const std::int64_t hit : hits) {
    wanted.hit = hit;
    if (hits.size() > 1 && hit >= prompt) continue;  // half of a short prompt
    each_.push_back({id, TRY(comparer.run(wanted))});
  }
  return {};
}

Result<> CompareReport::check() const {
  if (!each_.empty()) return {};
  if (errors_.empty())
    return fail(Code::kInvalidArgument, "--compare: there are no lines; each needs \"tokens\"");
  return fail(
      Code::kInvalidArgument, "--compare: no line could be used: {}", json::serialize(errors_[0])
  );
}

json::object CompareReport::json() const {
  Summary all;
  std::vector<double> every;
  json::array each;
  for (const Each& one : each_) {
    Summary sum;
    add_to(sum, one.got);
    add_to(all, one.got);
    add_kl(sum, one.got.kl);
    every.insert(every.end(), one.got.kl.begin(), one.got.kl.end());
    json::object out = {{"id", one.id}, {"hit", one.got.hit}};
    for (auto& [key, value] : to_json(sum)) out[key] = value;
    each.push_back(std::move(out));
  }
  add_kl(all, std::move(every));
  json::object out = {{"a", settings_[0].name}, {"b", settings_[1].name}, {"hits", each_.size()}};
  for (auto& [key, value] : to_json(all)) out[key] = value;
  out["rows_saved"] = all.rows_before[0] - all.rows_before[1];
  out["each"] = std::move(each);
  out["errors"] = json::array(errors_.begin(), errors_.end());
  return out;
}

std::string CompareReport::text() const {
  Summary all;
  std::vector<double> every;
  for (const Each& one : each_) {
    add_to(all, one.got);
    every.insert(every.end(), one.got.kl.begin(), one.got.kl.end());
  }
  add_kl(all, std::move(every));
  std::string out = fmt::format(
      "{} against {}: {} hits, {} rows behind them\n",
      settings_[0].name,
      settings_[1].name,
      each_.size(),
      all.rows
  );
  const auto row = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{:<22}{}\n", name, value);
  };
  row("KL, mean", fmt::format("{:.3g} nats", all.mean));
  row("KL, p50 / p99 / max", fmt::format("{:.3g} / {:.3g} / {:.3g}", all.p50, all.p99, all.max));
  row("top-1 agreement", fmt::format("{:.2f} %", 100 * all.top1()));
  row("greedy agreement",
      fmt::format(
          "{:.2f} % of {} tokens, up to the first that differs", 100 * all.agreement(), all.greedy
      ));
  row("rows before the hits",
      fmt::format(
          "{} and {}: {} saved",
          all.rows_before[0],
          all.rows_before[1],
          all.rows_before[0] - all.rows_before[1]
      ));
  for (const json::object& error : errors_)
    out += fmt::format("left out: {}\n", json::serialize(error));
  return out;
}

}  // namespace artery::cli
