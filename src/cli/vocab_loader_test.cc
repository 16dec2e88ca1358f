// What GGUF keys say of text insertion.

#include "cli/vocab_loader.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "model/format/gguf.h"
#include "testing/gguf_writer.h"

namespace artery::cli {
namespace {

codec::InfillTokens loaded(const testing::GgufWriter& writer) {
  const std::string path = ::testing::TempDir() + "vocab_loader_test.gguf";
  EXPECT_TRUE(writer.write(path));
  const auto file = model::GgufFile::open(path);
  EXPECT_TRUE(file);
  std::vector<std::string> warnings;
  const auto data = load_vocab(**file, &warnings);
  EXPECT_TRUE(data) << (data ? "" : data.error().message);
  std::remove(path.c_str());
  return data->infill;
}

testing::GgufWriter vocabulary(const std::vector<std::string>& tokens) {
  testing::GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.ggml.model", "gpt2");
  writer.set_string("tokenizer.ggml.pre", "gpt-2");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_strings("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  return writer;
}

TEST(VocabLoaderInfill, ByKeyOrBySpelling) {
  const std::vector<std::string> tokens = {"a", "b", "ab", "x", "y", "z"};
  EXPECT_FALSE(loaded(vocabulary(tokens)).known());
  for (const auto& names :
       {std::vector<std::string>{"fim_pre", "fim_suf", "fim_mid"}, {"prefix", "suffix", "middle"}
       }) {
    testing::GgufWriter writer = vocabulary(tokens);
    writer.set_unsigned("tokenizer.ggml." + names[0] + "_token_id", 5);
    writer.set_unsigned("tokenizer.ggml." + names[1] + "_token_id", 3);
    writer.set_unsigned("tokenizer.ggml." + names[2] + "_token_id", 4);
    const codec::InfillTokens marks = loaded(writer);
    EXPECT_EQ(marks.prefix, 5);
    EXPECT_EQ(marks.suffix, 3);
    EXPECT_EQ(marks.middle, 4);
  }
  const codec::InfillTokens spelled =
      loaded(vocabulary({"a", "b", "ab", "<fim_middle>", "<fim_prefix>", "<fim_suffix>"}));
  EXPECT_EQ(spelled.prefix, 4);
  EXPECT_EQ(spelled.suffix, 5);
  EXPECT_EQ(spelled.middle, 3);
}

}  // namespace
}  // namespace artery::cli
