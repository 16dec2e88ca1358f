// Tokenizers against ../shared/golden/models/tokenizers: ids, pieces, streaming and decoding of
// 729 nasty texts per vocabulary; and against the texts that llama.cpp publishes with two of them.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "codec/stream/detokenizer.h"
#include "codec/tokenizer.h"
#include "vocabularies.h"

namespace artery::codec {
namespace {

namespace json = boost::json;

std::vector<json::object> read_rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<json::object> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line).as_object());
  return rows;
}

std::vector<TokenId> ids_of(const json::value& value) {
  std::vector<TokenId> ids;
  for (const json::value& id : value.as_array()) ids.push_back(json::value_to<TokenId>(id));
  return ids;
}

std::string text_of(const json::value& value) { return std::string(value.as_string()); }

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

// "e280 8d" is two pieces.
std::vector<std::string> pieces_of(const json::value& value) {
  std::vector<std::string> pieces;
  std::istringstream words(text_of(value));
  for (std::string word; words >> word;) pieces.push_back(from_hex(word));
  return pieces;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ = real_tokenizer(GetParam());
    if (HasFailure()) FAIL();
    if (tokenizer_ == nullptr) GTEST_SKIP() << missing_reason(GetParam());
    if (!std::filesystem::exists(folder())) GTEST_SKIP() << folder() << " is not here";
  }
  static std::string folder() { return shared_path("golden/models/tokenizers/"); }
  std::vector<json::object> rows(const std::string& suffix) const {
    return read_rows(folder() + GetParam() + suffix);
  }

  const Tokenizer* tokenizer_ = nullptr;
};

TEST_P(Golden, EncodesAsTheReference) {
  const auto all = rows(".jsonl");
  ASSERT_EQ(all.size(), 729U);
  for (const json::object& row : all) {
    const std::string text = text_of(row.at("text"));
    const auto plain = ids_of(row.at("plain").at("ids"));
    const auto special = row.contains("special") ? ids_of(row.at("special").at("ids")) : plain;
    EXPECT_EQ(tokenizer_->encode(text, {}), plain) << row.at("n") << " " << row.at("text");
    EXPECT_EQ(tokenizer_->encode(text, {.parse_special = true}), special)
        << row.at("n") << " " << row.at("text");
  }
}

TEST_P(Golden, PiecesAndDecoding) {
  for (const json::object& row : rows(".jsonl")) {
    const auto ids = ids_of(row.at("plain").at("ids"));
    const auto pieces = pieces_of(row.at("pieces_hex"));
    ASSERT_EQ(pieces.size(), ids.size()) << row.at("n");
    std::string joined;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tokenizer_->piece(ids[i]), pieces[i]) << row.at("n") << " piece " << i;
      joined += pieces[i];
    }
    EXPECT_EQ(tokenizer_->decode(ids, false), joined) << row.at("n");
    const std::string want = row.contains("decoded_hex") ? from_hex(text_of(row.at("decoded_hex")))
                                                         : text_of(row.at("text"));
    EXPECT_EQ(joined, want) << row.at("n");
  }
}

TEST_P(Golden, StreamsWholeCharacters) {
  int streamed = 0;
  for (const json::object& row : rows(".jsonl")) {
    const auto ids = ids_of(row.at("plain").at("ids"));
    // Long rows and those of ASCII have no "stream": only the joined text is compared.
    const bool known = row.contains("stream");
    Detokenizer detokenizer(*tokenizer_, false, false);
    std::string joined;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string delta = detokenizer.push(ids[i]);
      joined += delta;
      if (known) {
        EXPECT_EQ(delta, text_of(row.at("stream").as_array().at(i)))
            << row.at("n") << " token " << i;
      }
    }
    const bool rest = row.contains("stream_rest_hex");
    EXPECT_EQ(detokenizer.finish(), rest ? "\xEF\xBF\xBD" : "") << row.at("n");
    if (!row.contains("decoded_hex")) {
      EXPECT_EQ(joined, text_of(row.at("text"))) << row.at("n");
    }
    streamed += known ? 1 : 0;
  }
  EXPECT_GT(streamed, 300);
}

TEST_P(Golden, DecodesArbitraryIds) {
  const auto all = rows(".decode.jsonl");
  ASSERT_EQ(all.size(), 60U);
  for (const json::object& row : all) {
    const auto ids = ids_of(row.at("ids"));
    EXPECT_EQ(tokenizer_->decode(ids, false), from_hex(text_of(row.at("bytes_hex"))));
    EXPECT_EQ(tokenizer_->decode(ids, true), from_hex(text_of(row.at("skip_special_hex"))));
    Detokenizer detokenizer(*tokenizer_, false, false);
    std::string shown;
    for (TokenId id : ids) shown += detokenizer.push(id);
    shown += detokenizer.finish();
    EXPECT_EQ(shown, text_of(row.at("hf_decode")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers,
    Golden,
    testing::Values("gpt2", "qwen2", "smollm2", "gemma3"),
    [](const auto& param) { return std::string(param.param); }
);

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos;
       end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

class Published : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Published, TextsOfLlamaCpp) {
  const auto [name, file] = GetParam();
  const Tokenizer* tokenizer = real_tokenizer(name);
  if (HasFailure()) FAIL();
  if (tokenizer == nullptr) GTEST_SKIP() << missing_reason(name);
  const auto texts = split(read_file(shared_path(file) + ".inp"), "\n__ggml_vocab_test__\n");
  const auto answers = split(read_file(shared_path(file) + ".out"), "\n");
  ASSERT_GE(texts.size(), 45U);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::istringstream line(answers.at(i));
    std::vector<TokenId> want;
    for (TokenId id = 0; line >> id;) want.push_back(id);
    EXPECT_EQ(tokenizer->encode(texts[i], {}), want) << "text " << i << ": " << texts[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers,
    Published,
    testing::Values(
        std::pair{"gpt2", "models/ggml-vocab-gpt-2.gguf"},
        std::pair{"qwen2", "models/ggml-vocab-qwen2.gguf"}
    )
);

}  // namespace
}  // namespace artery::codec
