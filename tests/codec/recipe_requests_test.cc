// Requests to prompts, token ids, options and errors against
// ../shared/golden/codec/requests.jsonl.zst: what `artery codec render` writes for each line, by
// the code that writes it.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "cli/request_case.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "deepseek_tokenizer.h"
#include "golden_lines.h"

namespace artery::cli {
namespace {

using codec::api::Json;
using codec::api::JsonMember;
using codec::api::JsonTree;

// A line has more levels than the request in it.
constexpr int kLineDepth = 512;

const std::string kRecord =
    std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/codec/requests.jsonl.zst";

// Numbers by value, members in any order.
bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return codec::api::to_json(a) == codec::api::to_json(b);
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.text() == b.text();
  if (a.is_bool()) return a.boolean() == b.boolean();
  if (a.is_array()) {
    if (a.items().size() != b.items().size()) return false;
    for (std::size_t i = 0; i < a.items().size(); ++i) {
      if (!equal(a.items()[i], b.items()[i])) return false;
    }
  }
  if (!a.is_object()) return true;
  if (a.members().size() != b.members().size()) return false;
  for (const JsonMember& member : a.members()) {
    const Json* const other = b.find(member.key);
    if (other == nullptr || !equal(member.value, *other)) return false;
  }
  return true;
}

// A body that holds lone surrogates makes the whole line no JSON for a strict reader: it is taken
// as the text it stands for.
std::string readable(const std::string& line) {
  if (JsonTree::parse(line, kLineDepth)) return line;
  constexpr std::string_view kBody = ",\"body\":";
  const std::size_t begin = line.find(kBody), end = line.find(",\"error\":");
  if (begin == line.npos || end == line.npos) return line;
  std::string out = line.substr(0, begin) + ",\"body_text\":";
  const std::string_view body =
      std::string_view(line).substr(begin + kBody.size(), end - begin - kBody.size());
  codec::api::put_json_string(out, body);
  return out + line.substr(end);
}

bool is_ids(std::string_view field) { return field == "ids" || field == "ids_error"; }

// `with_ids`: off when there is no tokenizer.
std::string difference(const Json& wanted, const Json& got, bool with_ids = true) {
  for (const JsonMember& member : wanted.members()) {
    if (!with_ids && is_ids(member.key)) continue;
    const Json* const found = got.find(member.key);
    if (found == nullptr) return std::string(member.key) + " is missing";
    if (equal(member.value, *found)) continue;
    return std::string(member.key) + "\n  wanted " + codec::api::to_json(member.value) +
           "\n  got    " + codec::api::to_json(*found);
  }
  const std::size_t without_ids = with_ids ? 0 : 1;
  return wanted.members().size() - without_ids == got.members().size()
             ? ""
             : "more members than recorded";
}

// The texts of errors in reading JSON are the official library's own.
std::string error_difference(const Json& wanted, const Json& got) {
  const Json* const stage = got.find("stage");
  if (stage == nullptr || !equal(*wanted.find("stage"), *stage)) return difference(wanted, got);
  return stage->is_text("parse") ? "" : difference(wanted, got);
}

std::string check(const Json& line, const codec::Tokenizer* tokenizer) {
  auto request = read_request_case(line, {});
  if (!request) return request.error().message;
  const Json *result = line.find("result"), *error = line.find("error");
  if (result != nullptr) {
    for (const Json& asked : result->find("resolve_max_tokens")->items()) {
      request->resolve.emplace_back(
          static_cast<std::int64_t>(asked.items()[0].whole()),
          static_cast<std::int64_t>(asked.items()[1].whole())
      );
    }
  }
  const std::string text = "{" + run_request_case(*request, tokenizer) + "}";
  const auto tree = JsonTree::parse(text, kLineDepth);
  if (!tree) return tree.error() + " in " + text;
  const std::string_view wanted = result != nullptr ? "result" : "error";
  const Json* const got = tree->root().find(wanted);
  if (got == nullptr) return "not " + std::string(wanted) + ": " + text.substr(0, 1000);
  if (result != nullptr) return difference(*result, *got, tokenizer != nullptr);
  std::string found = error_difference(*error, *got);
  const Json* const before = line.find("before_error");
  const bool is_converted = error->find("stage")->is_text("convert");
  if (!found.empty() || before == nullptr || !is_converted) return found;
  const Json* const got_before = tree->root().find("before_error");
  return got_before == nullptr ? "no before_error" : difference(*before, *got_before);
}

class RecipeRequests : public testing::TestWithParam<const char*> {};

TEST_P(RecipeRequests, EveryCaseIsAsRecorded) {
  const auto lines = codec::read_zst_lines(kRecord);
  if (lines.empty()) GTEST_SKIP() << "no " << kRecord;
  const codec::Tokenizer* const tokenizer = codec::deepseek_tokenizer();
  std::map<std::string, std::pair<int, int>> counts;  // category: equal, all
  int shown = 0, all = 0;
  for (const std::string& raw : lines) {
    const std::string text = readable(raw);
    const auto line = JsonTree::parse(text, kLineDepth);
    ASSERT_TRUE(line) << line.error();
    if (!line->root().find("api")->is_text(GetParam())) continue;
    ++all;
    const std::string found = check(line->root(), tokenizer);
    auto& count = counts[std::string(line->root().find("category")->text())];
    count.first += found.empty();
    ++count.second;
    if (!found.empty() && ++shown <= 10)
      ADD_FAILURE() << line->root().find("id")->text() << ": " << found.substr(0, 4000);
  }
  EXPECT_GT(all, 1000);
  for (const auto& [category, count] : counts) EXPECT_EQ(count.first, count.second) << category;
  if (tokenizer == nullptr) GTEST_SKIP() << "token ids: " << codec::kNoDeepseekTokenizer;
}

INSTANTIATE_TEST_SUITE_P(
    Api,
    RecipeRequests,
    testing::Values("chat", "messages", "responses"),
    [](const auto& made) { return std::string(made.param); }
);

}  // namespace
}  // namespace artery::cli
