// Model output to events and responses against ../shared/golden/codec/outputs.jsonl.zst and
// splits.jsonl.zst, what the official package does with it: every event byte for byte and in the
// chunk in which it came.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "cli/output_case.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/unicode.h"
#include "golden_lines.h"
#include "record_tokenizer.h"

namespace artery::codec {
namespace {

using api::Json;
using api::JsonTree;

const std::string kRecord = std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/codec/";

// An event or response of the record as the package wrote it.
std::string spelled(const Json& value) {
  return value.is_string() ? std::string(value.text()) : api::to_json(value);
}

std::string member(const Json& line, std::string_view key) {
  const Json* const found = line.find(key);
  return found == nullptr ? "null" : api::to_json(*found);
}

// The number of tokens of the reasoning needs the whole tokenizer; without it it is not compared.
void mask_reasoning_tokens(std::string& text) {
  for (const std::string_view key : {"\"reasoning_tokens\":"}) {
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
      at += key.size();
      text.erase(at, text.find_first_not_of("0123456789", at) - at);
    }
  }
}

class OutputRecord : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (std::filesystem::exists(kRecord)) tokenizer_ = load_record_tokenizer(kRecord);
  }
  static void TearDownTestSuite() { tokenizer_ = nullptr; }

  void SetUp() override {
    if (!std::filesystem::exists(kRecord)) GTEST_SKIP() << "no ../shared/golden/codec";
    ASSERT_NE(tokenizer_, nullptr);
  }

  // Empty: equal.
  static std::string compare(const Json& line, const cli::OutputRun& run) {
    std::vector<std::pair<std::string, std::string>> pairs;
    const std::span<const Json> expected = line.find("events")->items();
    for (std::size_t i = 0; i < std::max(expected.size(), run.events.size()); ++i) {
      auto& [want, got] = pairs.emplace_back();
      if (i < expected.size()) {
        const std::span<const Json> event = expected[i].items();
        want =
            api::to_json(event[0]) + ' ' + std::string(event[1].text()) + ' ' + spelled(event[2]);
        if (event[1].is_null()) {
          want = api::to_json(event[0]) + "  " + spelled(event[2]);
        }
      }
      if (i < run.events.size()) {
        const cli::OutputRun::Event& event = run.events[i];
        got = std::to_string(event.chunk) + ' ' + event.event.name + ' ' + event.event.data;
      }
    }
    pairs.emplace_back(spelled(*line.find("response")), run.response);
    pairs.emplace_back(
        member(line, "finished_after"),
        run.finished_after ? std::to_string(*run.finished_after) : "null"
    );
    std::string errors;
    for (const auto& [chunk, message] : run.errors) {
      errors += errors.empty() ? "[[" : ",[";
      errors += std::to_string(chunk) + ",\"RuntimeError\",\"" + message + "\"]";
    }
    pairs.emplace_back(member(line, "error"), errors.empty() ? "null" : errors + "]");
    for (auto& [want, got] : pairs) {
      if (!tokenizer_->counts()) {
        mask_reasoning_tokens(want);
        mask_reasoning_tokens(got);
      }
      if (want != got) return "expected " + want + "\n     got " + got;
    }
    return {};
  }

  static std::unique_ptr<RecordTokenizer> tokenizer_;
};
std::unique_ptr<RecordTokenizer> OutputRecord::tokenizer_;

TEST_F(OutputRecord, AllEventsAndResponses) {
  const std::vector<std::string> lines = read_zst_lines(kRecord + "outputs.jsonl.zst");
  ASSERT_EQ(lines.size(), 3118U);
  std::map<std::string, std::pair<int, int>> equal;  // of all, by API and category
  int shown = 0;
  for (const std::string& text : lines) {
    const auto tree = JsonTree::parse(text);
    ASSERT_TRUE(tree) << tree.error();
    const Json& line = tree->root();
    const std::string name =
        std::string(line.find("api")->text()) + ' ' + std::string(line.find("category")->text());
    auto& [good, all] = equal[name];
    ++all;
    const auto output = cli::read_output_case(line);
    if (!output) {
      if (++shown <= 20) ADD_FAILURE() << line.find("id")->text() << ": " << output.error().message;
      continue;
    }
    const std::string difference =
        compare(line, cli::run_output_case(*output, tokenizer_.get(), api::Faithfulness::kRecipe));
    if (difference.empty()) {
      ++good;
    } else if (++shown <= 20) {
      ADD_FAILURE() << line.find("id")->text() << ": " << difference;
    }
  }
  for (const auto& [name, count] : equal) {
    EXPECT_EQ(count.first, count.second) << name;
    RecordProperty(name, std::to_string(count.first) + "/" + std::to_string(count.second));
  }
}

// `text` cut into pieces of so many characters; the last one repeats.
std::vector<std::string> cut(std::string_view text, const std::vector<std::size_t>& sizes) {
  std::vector<std::string> pieces;
  std::size_t at = 0;
  for (std::size_t i = 0; at < text.size(); ++i) {
    std::size_t characters = sizes[std::min(i, sizes.size() - 1)], end = at;
    while (characters-- > 0 && end < text.size()) end += decode_utf8(text, end).bytes;
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::vector<std::size_t> sizes_of(std::string_view name, const Json& split) {
  if (name == "one") return {std::size_t(-1)};
  if (name == "char") return {1};
  if (name == "two") return {2};
  std::vector<std::size_t> sizes;
  for (const Json& size : split.find("pieces")->items()) sizes.push_back(size.whole());
  return sizes;
}

cli::OutputCase with_chunks(
    cli::OutputCase output, const std::vector<std::string>& pieces, const Json& finish
) {
  output.chunks.clear();
  cli::OutputChunk ready;
  ready.kind = cli::OutputChunk::Kind::kReady;
  ready.usage = {120, 64};
  ready.fingerprint = "fp-1";
  output.chunks.push_back(ready);
  for (const std::string& piece : pieces) {
    cli::OutputChunk& chunk = output.chunks.emplace_back();
    chunk.kind = cli::OutputChunk::Kind::kText;
    chunk.text = piece;
  }
  if (finish.is_null()) return output;
  cli::OutputChunk& last = output.chunks.emplace_back();
  last.kind = cli::OutputChunk::Kind::kFinish;
  if (finish.is_text("length")) last.finish = deepseek::BackendFinish::kLength;
  if (finish.is_text("content_filter")) last.finish = deepseek::BackendFinish::kContentFilter;
  return output;
}

std::string digest_of(const cli::OutputRun& run) {
  std::string text = "[";
  for (const cli::OutputRun::Event& event : run.events) {
    if (text.size() > 1) text += ',';
    text += '[';
    text += event.event.name.empty() ? "null" : '"' + event.event.name + '"';
    text += ',' + event.event.data + ']';
  }
  text += ']';
  return hex(sha256(std::as_bytes(std::span(text))));
}

TEST_F(OutputRecord, AllSplits) {
  const std::vector<std::string> lines = read_zst_lines(kRecord + "splits.jsonl.zst");
  ASSERT_EQ(lines.size(), 439U);
  int equal = 0, all = 0, shown = 0;
  for (const std::string& text : lines) {
    const auto tree = JsonTree::parse(text);
    ASSERT_TRUE(tree) << tree.error();
    const Json& line = tree->root();
    const auto output = cli::read_output_case(line);
    ASSERT_TRUE(output) << output.error().message;
    for (const api::JsonMember& split : line.find("splits")->members()) {
      ++all;
      const auto pieces = cut(line.find("text")->text(), sizes_of(split.key, split.value));
      const cli::OutputRun run = cli::run_output_case(
          with_chunks(*output, pieces, *line.find("finish")), nullptr, api::Faithfulness::kRecipe
      );
      const bool same = run.events.size() == split.value.find("events")->whole() &&
                        digest_of(run) == split.value.find("sha256")->text();
      equal += same ? 1 : 0;
      if (!same && ++shown <= 10) {
        ADD_FAILURE() << line.find("id")->text() << " cut as " << split.key << ": "
                      << run.events.size() << " events";
      }
    }
  }
  EXPECT_EQ(equal, all);
  RecordProperty("splits", std::to_string(equal) + "/" + std::to_string(all));
}

}  // namespace
}  // namespace artery::codec
