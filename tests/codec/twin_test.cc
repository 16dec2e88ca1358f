// The fast path of every real vocabulary against its plain twin: source and prose from this
// repository, texts drawn from the vocabulary's own pieces, and single pieces.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "codec/tokenizer.h"
#include "vocabularies.h"

namespace artery::codec {
namespace {

class Twin : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ = real_tokenizer(GetParam());
    if (HasFailure()) FAIL();
    if (tokenizer_ == nullptr) GTEST_SKIP() << missing_reason(GetParam());
  }

  void expect_equal(const std::string& text) {
    const auto plain = tokenizer_->encode(text, {.plain = true});
    // Twice: what the first call found out about words is used by the second.
    for (int i = 0; i < 2; ++i)
      ASSERT_EQ(tokenizer_->encode(text, {}), plain) << text.substr(0, 200);
    ASSERT_EQ(
        tokenizer_->encode(text, {.add_special = true, .parse_special = true}),
        tokenizer_->encode(text, {.add_special = true, .parse_special = true, .plain = true})
    );
  }

  const Tokenizer* tokenizer_ = nullptr;
};

TEST_P(Twin, FilesOfThisRepository) {
  int files = 0;
  for (const char* folder : {"/src/codec", "/src/engine", "/docs"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(ARTERY_SOURCE_DIR + std::string(folder))) {
      if (!entry.is_regular_file()) continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      expect_equal(text.str());
      if (HasFatalFailure()) return;
      ++files;
    }
  }
  EXPECT_GT(files, 20);
}

TEST_P(Twin, EachPiece) {
  const auto count = static_cast<TokenId>(tokenizer_->vocab().tokens.size());
  // All of them for a small vocabulary, else every few.
  const TokenId step = 1 + count / 20000;
  for (TokenId id = 0; id < count; id += step) {
    const std::string piece(tokenizer_->piece(id));
    for (const std::string& text : {piece, " " + piece, piece + piece, "a" + piece + " b"}) {
      expect_equal(text);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Twin, TextsOfRandomPieces) {
  constexpr unsigned kSeed = 20261130;
  std::mt19937 random(kSeed);
  const auto below = [&](std::size_t count) { return std::size_t{random()} % count; };
  const std::string odd[] = {" ", "\n", "\xFF", "\xCC\x81", "\xE2\x96\x81", "'s", "12", "\xE2"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (std::size_t parts = below(200); parts > 0; --parts) {
      const auto id = static_cast<TokenId>(below(tokenizer_->vocab().tokens.size()));
      std::string piece(below(4) == 0 ? odd[below(std::size(odd))] : tokenizer_->piece(id));
      if (below(8) == 0) piece.resize(below(piece.size() + 1));
      for (std::size_t copies = below(12) == 0 ? below(40) : 1; copies > 0; --copies) text += piece;
    }
    expect_equal(text);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers, Twin, testing::Values("gpt2", "qwen2", "smollm2", "stories260k", "gemma3")
);

}  // namespace
}  // namespace artery::codec
