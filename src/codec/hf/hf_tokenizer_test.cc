#include "codec/hf/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "codec/bpe/byte_alphabet.h"

namespace artery::codec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A document of one part each; what a test does not set is null.
struct Json {
  std::string normalizer = "null", pre = "null", post = "null";
  std::string decoder =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"}]})";
  std::string added = "[]";
  std::string model = R"({"type":"BPE","unk_token":"?","fuse_unk":true,"vocab":{"?":0,"a":1,"b":2,)"
                      R"("c":3,"▁":4,"ab":5,"▁a":6,"▁ab":7,"!":8},"merges":["a b","▁ a","▁ ab"]})";

  std::string text() const {
    return R"({"version":"1.0","added_tokens":)" + added + R"(,"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + pre + R"(,"post_processor":)" + post + R"(,"decoder":)" +
           decoder + R"(,"model":)" + model + "}";
  }
};

std::unique_ptr<Tokenizer> make(const Json& json, const HfTokenizerConfig& config = {}) {
  auto made = make_hf_tokenizer(json.text(), config);
  if (!made) {
    ADD_FAILURE() << made.error().message;
    return nullptr;
  }
  return made.take();
}

std::vector<TokenId> encode(const Json& json, std::string_view text) {
  const auto tokenizer = make(json);
  const auto ids = tokenizer->encode(text, {.parse_special = true});
  EXPECT_EQ(tokenizer->encode(text, {.parse_special = true, .plain = true}), ids);
  return ids;
}

std::string error_of(const Json& json, const HfTokenizerConfig& config = {}) {
  const auto made = make_hf_tokenizer(json.text(), config);
  return made ? std::string("made") : made.error().message;
}

TEST(HfTokenizer, MergesCharactersAndFusesUnknownOnes) {
  Json json;
  EXPECT_THAT(encode(json, "abac"), ElementsAre(5, 1, 3));
  EXPECT_THAT(encode(json, "axyb"), ElementsAre(1, 0, 2));
  json.normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  EXPECT_THAT(encode(json, " ab a"), ElementsAre(7, 6));
  EXPECT_EQ(make(json)->decode(std::vector<TokenId>{7, 6}, false), " ab a");
}

TEST(HfTokenizer, FallsBackToBytes) {
  Json json;
  json.model = R"({"type":"BPE","unk_token":"?","byte_fallback":true,"vocab":{"?":0,"a":1,)"
               R"("<0xC3>":2,"<0xA9>":3},"merges":[]})";
  EXPECT_THAT(encode(json, "a\xC3\xA9z"), ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(make(json)->piece(2), "\xC3");
}

TEST(HfTokenizer, PairsOfMergesMayHoldSpaces) {
  Json json;
  json.model = R"({"type":"BPE","vocab":{"a":0," ":1,"a ":2},"merges":[["a"," "]]})";
  EXPECT_THAT(encode(json, "a a"), ElementsAre(2, 0));
}

TEST(HfTokenizer, IgnoreMergesTakesWholeWords) {
  Json json;
  json.model = R"({"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2},"merges":[]})";
  EXPECT_THAT(encode(json, "ab"), ElementsAre(2));
  json.model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[]})";
  EXPECT_THAT(encode(json, "ab"), ElementsAre(0, 1));
}

TEST(HfTokenizer, MetaspacePrependsBySchemeAndSplits) {
  Json json;
  const auto metaspace = [&](const std::string& scheme) {
    json.pre = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")" + scheme +
               R"(","split":true})";
  };
  json.added = R"([{"id":9,"content":"<x>","special":false,"normalized":false}])";
  metaspace("always");
  EXPECT_THAT(encode(json, "ab<x>a"), ElementsAre(7, 9, 6));
  metaspace("first");
  EXPECT_THAT(encode(json, "ab<x>a"), ElementsAre(7, 9, 1));
  EXPECT_THAT(encode(json, "<x>a"), ElementsAre(9, 1));
  metaspace("never");
  EXPECT_THAT(encode(json, "ab a"), ElementsAre(5, 6));
  metaspace("sometimes");
  EXPECT_THAT(error_of(json), HasSubstr("unknown prepend_scheme 'sometimes'"));
}

// One token a word: ignore_merges and a vocabulary of whole words.
std::vector<TokenId> cut(const std::string& pre, std::string_view text) {
  Json json;
  json.pre = pre;
  json.model =
      R"({"type":"BPE","ignore_merges":true,"unk_token":"?","fuse_unk":true,"vocab":{"?":0,)"
      R"("a":1,"-":2,"a-":3,"-a":4,"--":5,"a--":6,"--a":7,"-a-":8,"1":9,"12":10,"a--a":11},)"
      R"("merges":[]})";
  return encode(json, text);
}

TEST(HfTokenizer, SplitBehaviors) {
  const auto split = [](const std::string& behavior, const std::string& invert = "false") {
    return R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior +
           R"(","invert":)" + invert + "}";
  };
  EXPECT_THAT(cut(split("Isolated"), "a--a"), ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(cut(split("Removed"), "a--a"), ElementsAre(1, 1));
  EXPECT_THAT(cut(split("Contiguous"), "a--a"), ElementsAre(1, 5, 1));
  EXPECT_THAT(cut(split("MergedWithPrevious"), "a--a"), ElementsAre(3, 2, 1));
  EXPECT_THAT(cut(split("MergedWithNext"), "a--a"), ElementsAre(1, 2, 4));
  EXPECT_THAT(cut(split("Removed", "true"), "a--a"), ElementsAre(2, 2));
  EXPECT_THAT(
      cut(R"({"type":"Split","pattern":{"Regex":"-+(?=a)|\\d"},"behavior":"Isolated"})", "a--a"),
      ElementsAre(1, 5, 1)
  );
}

TEST(HfTokenizer, OtherPreTokenizers) {
  EXPECT_THAT(cut(R"({"type":"Digits","individual_digits":true})", "12a"), ElementsAre(9, 0, 1));
  EXPECT_THAT(cut(R"({"type":"Digits"})", "12a"), ElementsAre(10, 1));
  EXPECT_THAT(cut(R"({"type":"WhitespaceSplit"})", " a \n-a "), ElementsAre(1, 4));
  EXPECT_THAT(cut(R"({"type":"Whitespace"})", "a--a 12"), ElementsAre(1, 5, 1, 10));
  EXPECT_THAT(cut(R"({"type":"Punctuation"})", "a-"), ElementsAre(1, 2));
}

TEST(HfTokenizer, Normalizers) {
  Json json;
  json.normalizer =
      R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},)"
      R"({"type":"Lowercase"},{"type":"Strip","strip_left":true,"strip_right":true},)"
      R"({"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"Regex":"x+"},"content":"b"}]})";
  EXPECT_THAT(encode(json, "  \xC3\x81xxX\n"), ElementsAre(7));
}

TEST(HfTokenizer, AddedTokensTakeSpacesAndStandAlone) {
  Json json;
  json.added = R"([{"id":9,"content":"<l>","special":true,"lstrip":true,"rstrip":true},)"
               R"({"id":10,"content":"cc","special":false,"single_word":true,"normalized":false}])";
  EXPECT_THAT(encode(json, "a \n<l>  b"), ElementsAre(1, 9, 2));
  EXPECT_THAT(encode(json, "cc!acc!"), ElementsAre(10, 8, 1, 3, 3, 8));
  const auto tokenizer = make(json);
  EXPECT_THAT(tokenizer->encode("<l>", {}), ElementsAre(0));  // three unknown, fused
  EXPECT_TRUE(tokenizer->is_control(9));
}

TEST(HfTokenizer, NormalizedTokensAreFoundBehindTheNormalizer) {
  Json json;
  json.normalizer = R"({"type":"Lowercase"})";
  json.added = R"([{"id":9,"content":"CC","special":false,"normalized":true}])";
  EXPECT_THAT(encode(json, "acC"), ElementsAre(1, 9));
}

TEST(HfTokenizer, TextsThatLookLikeControlTokensAreThat) {
  Json json;
  json.added = R"([{"id":9,"content":"<unused1>","special":false},)"
               R"({"id":10,"content":"<|user|>","special":false}])";
  const auto tokenizer = make(json);
  EXPECT_TRUE(tokenizer->is_control(9));
  EXPECT_TRUE(tokenizer->is_control(10));
}

TEST(HfTokenizer, TemplatesPutBosAndEos) {
  Json json;
  json.added =
      R"([{"id":9,"content":"<s>","special":true},{"id":10,"content":"</s>","special":true}])";
  json.post = R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
              R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],)"
              R"("special_tokens":{"<s>":{"id":"<s>","ids":[9]},"</s>":{"id":"</s>","ids":[10]}}})";
  EXPECT_THAT(make(json)->encode("a", {.add_special = true}), ElementsAre(9, 1, 10));
  EXPECT_THAT(
      make(json, {.add_eos = false})->encode("a", {.add_special = true}), ElementsAre(9, 1)
  );
  json.post = "null";
  const HfTokenizerConfig config{.bos = "<s>", .eos = "</s>", .add_bos = true};
  const auto tokenizer = make(json, config);
  EXPECT_THAT(tokenizer->encode("a", {.add_special = true}), ElementsAre(9, 1));
  EXPECT_TRUE(tokenizer->is_end_of_generation(10));
}

TEST(HfTokenizer, UnigramTakesTheBestSum) {
  Json json;
  json.pre = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})";
  json.decoder = json.pre;
  json.model = R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁",-2],["a",-3],["b",-3],)"
               R"(["ab",-4],["▁a",-3.5],["abb",-20]]})";
  EXPECT_THAT(encode(json, "ab"), ElementsAre(1, 4));
  EXPECT_THAT(encode(json, "axyb abb"), ElementsAre(5, 0, 3, 1, 4, 3));
  EXPECT_EQ(make(json)->decode(std::vector<TokenId>{1, 4, 1, 4}, false), "ab ab");
}

TEST(HfTokenizer, ByteLevelWithAPatternOfItsOwn) {
  Json json;
  json.pre =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"[a-b]+|\\s"},)"
      R"("behavior":"Isolated"},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  json.decoder = R"({"type":"ByteLevel"})";
  json.model = R"({"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġa":4,"Ã":5,"©":6},)"
               R"("merges":["a b","Ġ a"]})";
  EXPECT_THAT(encode(json, "ab ab\xC3\xA9"), ElementsAre(3, 2, 3, 5, 6));
}

TEST(HfTokenizer, SaysWhatIsWrongAndWhere) {
  const auto with_model = [](const std::string& model) {
    Json json;
    json.model = model;
    return error_of(json);
  };
  EXPECT_THAT(
      with_model(R"({"type":"WordPiece","vocab":{}})"), HasSubstr("model.type: model 'WordPiece'")
  );
  EXPECT_THAT(
      with_model(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), HasSubstr("id 0 is both")
  );
  EXPECT_THAT(
      with_model(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), HasSubstr("-1 is not from 0")
  );
  EXPECT_THAT(
      with_model(R"({"type":"BPE","vocab":{"a":2000000000},"merges":[]})"), HasSubstr("token 'a'")
  );
  EXPECT_THAT(
      with_model(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"),
      HasSubstr("model.merges[0]: 'b' is not in the vocabulary")
  );
  EXPECT_THAT(
      with_model(R"({"type":"BPE","vocab":{"a":0},"merges":["ab"]})"), HasSubstr("model.merges[0]")
  );
  EXPECT_THAT(
      with_model(R"({"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"})"),
      HasSubstr("model.end_of_word_suffix: is not supported")
  );
  EXPECT_THAT(
      with_model(R"({"type":"Unigram","vocab":[["a","b"]]})"),
      HasSubstr("model.vocab[0][1]: expected a number, found string")
  );
  EXPECT_THAT(with_model(R"({"type":"BPE"})"), HasSubstr("model.vocab: is missing"));
  Json json;
  json.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Precompiled"}]})";
  EXPECT_THAT(error_of(json), HasSubstr("normalizer.normalizers[0]: type 'Precompiled'"));
  json.normalizer = R"({"type":"Replace","pattern":{"Regex":"(a"},"content":""})";
  EXPECT_THAT(error_of(json), HasSubstr("normalizer.pattern.Regex: regular expression '(a'"));
  const auto cut_short = make_hf_tokenizer(R"({"model": )", {});
  ASSERT_FALSE(cut_short);
  EXPECT_THAT(cut_short.error().message, HasSubstr("not valid JSON"));
  const auto deep = make_hf_tokenizer(std::string(100000, '['), {});
  ASSERT_FALSE(deep);
  EXPECT_THAT(make_hf_tokenizer("[]", {}).error().message, HasSubstr("the document: expected"));
}

TEST(HfTokenizer, MustFitTheModelsVocabulary) {
  Json json;
  json.added = R"([{"id":9,"content":"<x>","special":true}])";
  EXPECT_THAT(error_of(json, {.vocab_size = 5}), HasSubstr("belongs to another model"));
  std::vector<std::string> warnings;
  const auto without = make_hf_tokenizer(json.text(), {.vocab_size = 9}, &warnings);
  ASSERT_TRUE(without);
  EXPECT_EQ((*without)->vocab().tokens.size(), 9U);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("'<x>' is outside the model's vocabulary of 9"));
  const auto filled = make(json, {.vocab_size = 12});
  EXPECT_EQ(filled->vocab().tokens.at(11), "[PAD11]");
  EXPECT_EQ(filled->vocab().kinds.at(11), TokenKind::kUnused);
}

TEST(HfTokenizer, HostileTextsAndPatternsEnd) {
  const std::clock_t start = std::clock();
  Json json;
  json.pre = R"({"type":"Split","pattern":{"Regex":"(a+)+!|(a|aa)+$"},"behavior":"Isolated"})";
  const auto slow = make(json);
  const std::string text(100'000, 'a');
  EXPECT_EQ(slow->encode(text, {}).size(), text.size());
  json.pre = "null";
  json.added = R"([{"id":9,"content":"<x>","special":true,"lstrip":true}])";
  EXPECT_EQ(
      make(json)->encode(std::string(200'000, ' ') + "<x>", {.parse_special = true}).back(), 9
  );
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20.0);
}

TEST(HfConfig, ReadsTokensTemplatesAndSampling) {
  const auto config = read_tokenizer_config(
      R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,)"
      R"("add_bos_token":true,"chat_template":[{"name":"default","template":"A"},)"
      R"({"name":"rag","template":"B"}]})"
  );
  ASSERT_TRUE(config);
  EXPECT_EQ(config->tokens.bos, "<s>");
  EXPECT_EQ(config->tokens.eos, "</s>");
  EXPECT_EQ(config->tokens.add_bos, true);
  EXPECT_FALSE(config->tokens.add_eos.has_value());
  ASSERT_EQ(config->chat_templates.size(), 2U);
  EXPECT_EQ(config->chat_templates[1].source, "B");
  const auto generation =
      read_generation_config(R"({"eos_token_id":[1,106],"top_k":64,"top_p":0.95})");
  ASSERT_TRUE(generation);
  EXPECT_THAT(generation->eos_ids, ElementsAre(1, 106));
  EXPECT_EQ(generation->top_k, 64);
  EXPECT_FALSE(generation->temperature.has_value());
  EXPECT_THAT(
      read_tokenizer_config(R"({"bos_token":3})").error().message, HasSubstr("bos_token: expected")
  );
  EXPECT_THAT(
      read_generation_config(R"({"eos_token_id":"x"})").error().message, HasSubstr("eos_token_id")
  );
}

}  // namespace
}  // namespace artery::codec
