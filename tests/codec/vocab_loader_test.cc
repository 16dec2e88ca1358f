// The tokenizer's part of real and of malformed GGUF files.

#include "cli/vocab_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "codec/tokenizer.h"
#include "model/format/gguf.h"
#include "vocabularies.h"

namespace artery::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Loaded {
  std::string error;  // empty: it loaded
  Code code = Code::kInternal;
  std::vector<std::string> warnings;
  VocabData data;
};

Loaded load(const std::string& path) {
  Loaded out;
  const auto note = [&](const Error& error) {
    out.error = error.message;
    out.code = error.code;
  };
  auto file = model::GgufFile::open(path);
  if (!file) {
    note(file.error());
    return out;
  }
  auto data = cli::load_vocab(**file, &out.warnings);
  if (!data) {
    note(data.error());
    return out;
  }
  out.data = data.take();
  const auto made = Tokenizer::make(out.data);
  if (!made) note(made.error());
  return out;
}

TEST(VocabLoader, MalformedFilesAreRefusedWithAReason) {
  const std::string folder = shared_path("golden/models/bad-files/");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"gguf_tokens_are_numbers.gguf", {"tokenizer.ggml.tokens", "uint32", "string"}},
      {"gguf_scores_short.gguf", {"39 scores for 40 tokens"}},
      {"gguf_token_types_short.gguf", {"3 token types for 40 tokens"}},
      {"gguf_tokenizer_model_unknown.gguf", {"unknown tokenizer.ggml.model 'abc'"}},
      {"gguf_bpe_without_merges.gguf",
       {"tokenizer.ggml.model is gpt2 but tokenizer.ggml.merges is missing"}},
      {"gguf_bpe_merge_without_space.gguf", {"merge 1 'ab' has no space"}},
  };
  for (const auto& [file, parts] : cases) {
    const Loaded loaded = load(folder + file);
    EXPECT_THAT(loaded.error, HasSubstr(file));
    for (const std::string& part : parts) EXPECT_THAT(loaded.error, HasSubstr(part));
    EXPECT_TRUE(loaded.code == Code::kBadFile || loaded.code == Code::kUnsupported) << file;
  }
}

TEST(VocabLoader, OddFilesLoadWithAWarning) {
  const std::string folder = shared_path("golden/models/bad-files/");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const Loaded equal = load(folder + "gguf_duplicate_tokens.gguf");
  EXPECT_EQ(equal.error, "");
  EXPECT_THAT(equal.warnings, ElementsAre(HasSubstr("tokens 9 and 10 are both 'a'")));
  const Loaded bos = load(folder + "gguf_bos_out_of_range.gguf");
  EXPECT_EQ(bos.error, "");
  EXPECT_THAT(
      bos.warnings,
      ElementsAre(HasSubstr("tokenizer.ggml.bos_token_id 4000 is outside the vocabulary of 40"))
  );
  EXPECT_EQ(bos.data.bos, -1);
  EXPECT_FALSE(bos.data.add_bos);
}

TEST(VocabLoader, EndsAndFlagsOfRealFiles) {
  const struct {
    const char* name;
    std::vector<TokenId> ends;
    bool add_bos;
  } cases[] = {
      {"smollm2", {0, 2}, false},
      {"qwen2.5-coder-0.5b", {151643, 151645}, false},
      {"stories260k", {1, 2}, true},
      {"gemma3", {1, 106}, true},
      {"gpt2", {50256}, false},
  };
  int seen = 0;
  for (const auto& c : cases) {
    const Tokenizer* tokenizer = real_tokenizer(c.name);
    ASSERT_FALSE(HasFailure());
    if (tokenizer == nullptr) continue;
    ++seen;
    EXPECT_EQ(tokenizer->vocab().end_of_generation, c.ends) << c.name;
    EXPECT_EQ(tokenizer->vocab().add_bos, c.add_bos) << c.name;
  }
  if (seen == 0) GTEST_SKIP() << "no model file is here";
}

}  // namespace
}  // namespace artery::codec
