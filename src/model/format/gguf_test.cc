#include "model/format/gguf.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <ctime>
#include <filesystem>
#include <map>

#include "model/load.h"
#include "testing/gguf_writer.h"
#include "testing/mem_file_system.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using testing::GgufWriter;
using testing::MemFileSystem;

const std::string kShared = std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/";

// Open and check_model, as `inspect` and `serve` do. Fills `warnings` on success.
Result<> judge(
    const std::string& path, const FileSystem& files, std::vector<std::string>& warnings
) {
  const auto file = TRY(GgufFile::open(path, files));
  const ModelInfo info = TRY(check_model(*file));
  warnings = file->warnings();
  warnings.insert(warnings.end(), info.warnings.begin(), info.warnings.end());
  return {};
}

Result<> judge(const std::string& path, const FileSystem& files) {
  std::vector<std::string> warnings;
  return judge(path, files, warnings);
}

json::value read_json(const std::string& path) {
  const auto text = system_file_system().read(path, std::size_t{1} << 28);
  return text ? json::parse(*text) : json::value();
}

// What each message (or warning) must hold besides the file's name; the manifest's should_report in
// our words.
const std::map<std::string, std::vector<std::string>> kMessages = {
    {"gguf_empty", {"empty (0 bytes)", "not a GGUF"}},
    {"gguf_magic_only", {"ends after the magic", "truncated in the header"}},
    {"gguf_wrong_magic", {"not a GGUF file", "'GGML'", "old format"}},
    {"gguf_header_12_bytes", {"truncated in the header", "counts"}},
    {"gguf_version_0", {"unsupported GGUF version 0"}},
    {"gguf_version_1", {"unsupported GGUF version 1 (32-bit counts)", "convert"}},
    {"gguf_version_99", {"unsupported GGUF version 99 (newer than this program)"}},
    {"gguf_big_endian", {"big-endian GGUF", "0x03000000", "not supported"}},
    {"gguf_cut_in_counts", {"truncated in the header"}},
    {"gguf_cut_in_key", {"truncated", "metadata key 2"}},
    {"gguf_cut_in_value", {"truncated in the value of llama.context_length"}},
    {"gguf_cut_in_token_array", {"truncated", "tokenizer.ggml.tokens"}},
    {"gguf_cut_in_tensor_info", {"truncated in tensor information 3 of 12"}},
    {"gguf_cut_before_data", {"tensor data missing", "2336"}},
    {"gguf_cut_half_data", {"tensor data truncated", "blk.0.attn_", "it needs bytes", "11232"}},
    {"gguf_cut_last_byte_of_tensor",
     {"tensor blk.0.ffn_down.weight lies 1 byte past the end of the file"}},
    {"gguf_tensor_count_2p63", {"impossible tensor count 9223372036854775808", "20128 bytes"}},
    {"gguf_kv_count_max", {"impossible metadata count 18446744073709551615"}},
    {"gguf_tensor_count_plus_1",
     {"tensor information 13", "malformed", "count is too large, or the file damaged"}},
    {"gguf_kv_count_minus_1",
     {"malformed tensor information", "metadata count is too small, or the file damaged"}},
    {"gguf_key_length_max", {"metadata key length 18446744073709551615 exceeds the file"}},
    {"gguf_key_length_1gib", {"metadata key length 1073741824 exceeds the file"}},
    {"gguf_string_length_2p40", {"string value length 1099511627776 exceeds the file"}},
    {"gguf_array_length_2p61", {"length 2305843009213693952", "overflows", "8 bytes each"}},
    {"gguf_array_of_strings_2p60", {"length 1152921504606846976 (strings", "exceeds the file"}},
    {"gguf_array_nested_5000", {"arrays nested too deeply", "x.deep"}},
    {"gguf_array_item_type_99", {"unknown array item type 99 in x.a"}},
    {"gguf_value_type_13", {"unknown metadata value type 13 for x.a"}},
    {"gguf_duplicate_key", {"duplicate metadata key llama.block_count"}},
    {"gguf_key_not_utf8", {"metadata key 22 is not valid UTF-8"}},
    {"gguf_key_empty", {"metadata key 22 is empty"}},
    {"gguf_key_with_nul", {"metadata key 22 contains a NUL byte"}},
    {"gguf_arch_not_utf8", {"general.architecture is not valid UTF-8"}},
    {"gguf_bool_is_7", {"boolean value 7 for x.flag is neither 0 nor 1"}},
    {"gguf_alignment_0", {"general.alignment is 0: must be a power of two"}},
    {"gguf_alignment_3", {"general.alignment is 3: must be a power of two"}},
    {"gguf_alignment_2p31", {"general.alignment is 2147483648", "data section"}},
    {"gguf_alignment_string", {"general.alignment has type string, expected uint32"}},
    {"gguf_arch_missing", {"general.architecture is missing"}},
    {"gguf_arch_unknown",
     {"unknown architecture 'quantum9000'", "supported: gemma3, gpt-oss, llama"}},
    {"gguf_arch_wrong_type", {"general.architecture has type uint32, expected string"}},
    {"gguf_dims_0_count", {"tensor blk.0.attn_q.weight has 0 dimensions"}},
    {"gguf_dims_5", {"tensor blk.0.attn_q.weight has 5 dimensions, the limit is", "4"}},
    {"gguf_dims_count_max", {"tensor blk.0.attn_q.weight has 4294967295 dimensions"}},
    {"gguf_dim_zero", {"tensor blk.0.attn_q.weight has a zero dimension"}},
    {"gguf_dim_negative",
     {"tensor blk.0.attn_q.weight: dimension", "9223372036854775840", "too large"}},
    {"gguf_dims_product_overflow",
     {"tensor blk.0.attn_q.weight: element count overflows 64 bits", "4294967296"}},
    {"gguf_dims_product_wraps_to_1024", {"tensor blk.0.attn_q.weight: element count overflows"}},
    {"gguf_type_99", {"tensor blk.0.attn_q.weight has unknown type 99"}},
    {"gguf_type_removed_4", {"tensor blk.0.attn_q.weight has type 4", "removed", "Q4_2"}},
    {"gguf_type_removed_31",
     {"tensor blk.0.attn_q.weight has type 31", "removed", "Q4_0_4_4", "as Q4_0"}},
    {"gguf_row_not_multiple_of_block",
     {"blk.0.attn_q.weight: rows of 33 values are not a multiple of Q4_0's block of 32"}},
    {"gguf_row_not_multiple_of_256",
     {"blk.0.attn_q.weight: rows of 32 values are not a multiple of Q4_K's block of 256"}},
    {"gguf_offset_unaligned",
     {"tensor blk.0.attn_q.weight: offset", "is not a multiple of the alignment 32"}},
    {"gguf_offset_past_end", {"blk.0.attn_q.weight: offset 1073741824 is past the end of the file"}
    },
    {"gguf_offset_wraps", {"tensor blk.0.attn_q.weight: offset", "overflows 64 bits"}},
    {"gguf_offset_overlap", {"overlap", "blk.0.attn_k.weight", "token_embd.weight"}},
    {"gguf_duplicate_tensor", {"duplicate tensor name blk.0.attn_k.weight"}},
    {"gguf_tensor_name_200", {"tensor name of 200 bytes is longer than 64"}},
    {"gguf_tensor_name_not_utf8", {"tensor name 5", "not valid UTF-8"}},
    {"gguf_missing_attn_q", {"missing tensor blk.0.attn_q.weight"}},
    {"gguf_missing_output_norm", {"missing tensor output_norm.weight"}},
    {"gguf_shape_q", {"blk.0.attn_q.weight has shape [32, 16], expected [32, 32]"}},
    {"gguf_shape_transposed_k", {"blk.0.attn_k.weight has shape [16, 32], expected [32, 16]"}},
    {"gguf_shape_norm", {"tensor output_norm.weight has shape [16], expected [32]"}},
    {"gguf_norm_as_quantized", {"tensor output_norm.weight has type Q4_0", "must be F32"}},
    {"gguf_heads_0", {"llama.attention.head_count is 0"}},
    {"gguf_heads_3", {"embedding length 32 is not a multiple of 3 heads"}},
    {"gguf_kv_heads_3", {"2 heads are not a multiple of 3 key/value heads"}},
    {"gguf_heads_negative", {"llama.attention.head_count is -2 (int32)", "uint32"}},
    {"gguf_block_count_million",
     {"llama.block_count is 1000000 but the file has tensors for 1 block"}},
    {"gguf_block_count_2", {"missing tensor blk.1.attn_norm.weight", "llama.block_count is 2"}},
    {"gguf_embedding_length_missing", {"missing metadata llama.embedding_length"}},
    {"gguf_embedding_length_max",
     {"llama.embedding_length is 4294967295 but token_embd.weight has 32 columns"}},
    {"gguf_context_0", {"llama.context_length is 0"}},
    {"gguf_eps_nan", {"llama.attention.layer_norm_rms_epsilon is not a finite number"}},
    {"gguf_rope_dims_17", {"llama.rope.dimension_count 17 is odd or larger than the head size 16"}},
    {"gguf_vocab_more_tokens_than_rows", {"41 tokens but token_embd.weight has 40 rows"}},
    {"gguf_tokens_are_numbers", {"tokenizer.ggml.tokens has type an array of uint32", "strings"}},
    {"gguf_scores_short", {"39 scores for 40 tokens"}},
    {"gguf_token_types_short", {"3 token types for 40 tokens"}},
    {"gguf_duplicate_tokens", {"tokens 9 and 10 are both 'a'"}},
    {"gguf_bos_out_of_range", {"tokenizer.ggml.bos_token_id 4000 is outside the vocabulary of 40"}},
    {"gguf_tokenizer_model_unknown", {"unknown tokenizer.ggml.model 'abc'"}},
    {"gguf_bpe_without_merges",
     {"tokenizer.ggml.model is gpt2 but tokenizer.ggml.merges is missing"}},
    {"gguf_bpe_merge_without_space", {"merge 1 'ab' has no space"}},
};

bool holds(const std::vector<std::string>& texts, const std::string& piece) {
  for (const std::string& text : texts)
    if (text.find(piece) != std::string::npos) return true;
  return false;
}

void expect_verdict(const std::string& name, const std::string& verdict) {
  const std::string path = kShared + "models/bad-files/" + name;
  std::vector<std::string> texts;
  const auto result = judge(path, system_file_system(), texts);
  if (!result) texts = {result.error().message};
  const bool must_refuse = verdict == "refuse" || verdict == "refuse_or_read_as_big_endian";
  const bool must_load = verdict == "may_load" || verdict == "must_load_chat_must_fail";
  if (must_refuse) {
    EXPECT_FALSE(result) << "was accepted";
  }
  if (must_load) {
    ASSERT_TRUE(result) << result.error().message;
  }
  if (!result) {
    const Code code = result.error().code;
    EXPECT_TRUE(code == Code::kBadFile || code == Code::kUnsupported) << static_cast<int>(code);
  }
  const auto pieces = kMessages.find(name.substr(0, name.find('.')));
  if (pieces == kMessages.end()) {
    EXPECT_TRUE(must_load) << "no expected message is listed";
    return;
  }
  EXPECT_TRUE(holds(texts, name)) << "the file's name is missing";
  for (const std::string& piece : pieces->second)
    EXPECT_TRUE(holds(texts, piece))
        << "missing '" << piece << "' in '" << (texts.empty() ? "" : texts[0]) << "'";
}

TEST(GgufBadFiles, EachGetsItsVerdictAndMessage) {
  if (!fs::exists(kShared + "models/bad-files/manifest.json"))
    GTEST_SKIP() << "../shared/golden is not here";
  const json::value manifest = read_json(kShared + "models/bad-files/manifest.json");
  int count = 0;
  for (const json::value& entry : manifest.at("bad").as_array()) {
    const std::string name(entry.at("file").as_string());
    if (!name.ends_with(".gguf")) continue;
    SCOPED_TRACE(name);
    expect_verdict(name, std::string(entry.at("verdict").as_string()));
    ++count;
  }
  EXPECT_GE(count, 80);
}

TEST(GgufBadFiles, OddOnesLoad) {
  if (!fs::exists(kShared + "models/bad-files/manifest.json"))
    GTEST_SKIP() << "../shared/golden is not here";
  const json::value manifest = read_json(kShared + "models/bad-files/manifest.json");
  int count = 0;
  for (const json::value& entry : manifest.at("must_load").as_array()) {
    const std::string name(entry.at("file").as_string());
    if (!name.ends_with(".gguf")) continue;
    SCOPED_TRACE(name);
    std::vector<std::string> warnings;
    const auto result = judge(kShared + "models/bad-files/" + name, system_file_system(), warnings);
    EXPECT_TRUE(result) << result.error().message;
    if (name == "odd_gguf_minimal.gguf") {
      EXPECT_TRUE(warnings.empty()) << warnings[0];
    }
    if (name == "odd_gguf_trailing_bytes.gguf") {
      EXPECT_TRUE(holds(warnings, "1000 bytes after"));
    }
    if (name == "odd_gguf_extra_tensor.gguf") {
      EXPECT_TRUE(holds(warnings, "extra.weight"));
    }
    ++count;
  }
  EXPECT_GE(count, 10);
}

std::string from_hex(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return out;
}

// Field report F1: a few dozen bytes must not end the process.
TEST(GgufBadFiles, FieldReportF1) {
  const std::map<std::string, std::vector<std::string>> expected = {
      {"zero_dim", {"tensor t has a zero dimension"}},
      {"n_dims_million", {"tensor t has 1000000 dimensions"}},
      {"align_zero", {"general.alignment is 0"}},
      {"version_99", {"version 99"}},
      {"three_bytes", {"not a GGUF file", "3 bytes"}},
      {"bad_value_type", {"value type 77 for x"}},
  };
  const std::string path = kShared + "reports/reports.json";
  if (!fs::exists(path)) GTEST_SKIP() << "../shared/golden is not here";
  const json::value all = read_json(path);
  const json::value* report = nullptr;
  auto visit = [&](const auto& self, const json::value& value) -> void {
    if (value.is_array())
      for (const json::value& item : value.as_array()) self(self, item);
    if (!value.is_object()) return;
    const json::value* id = value.as_object().if_contains("id");
    if (id != nullptr && id->is_string() && id->as_string() == "FR-F1") report = &value;
    for (const auto& item : value.as_object()) self(self, item.value());
  };
  visit(visit, all);
  ASSERT_NE(report, nullptr);
  std::size_t count = 0;
  for (const auto& entry : report->at("input").at("files_hex").as_object()) {
    const std::string name(entry.key());
    SCOPED_TRACE(name);
    MemFileSystem files;
    files.add(name + ".gguf", from_hex(entry.value().as_string()));
    const std::clock_t start = std::clock();
    const auto result = judge(name + ".gguf", files);
    EXPECT_LT(std::clock() - start, std::clock_t{2} * CLOCKS_PER_SEC);
    ASSERT_FALSE(result);
    EXPECT_TRUE(holds({result.error().message}, name + ".gguf"));
    ASSERT_TRUE(expected.contains(name));
    for (const std::string& piece : expected.at(name))
      EXPECT_TRUE(holds({result.error().message}, piece)) << result.error().message;
    ++count;
  }
  EXPECT_EQ(count, expected.size());
}

std::string refusal(std::string bytes) {
  MemFileSystem files;
  files.add("m.gguf", std::move(bytes));
  const auto result = judge("m.gguf", files);
  return result ? "" : result.error().message;
}

TEST(GgufForeignFiles, AreTold) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"<!DOCTYPE html>\n<html><head>", "HTML page"},
      {"\n\n <HTML lang=en>", "HTML page"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", "Git LFS pointer"},
      {std::string("PK\x03\x04") + std::string(30, '\0'), "zip archive"},
      {std::string("\x20") + std::string(7, '\0') + "{\"a\":{\"dtype\":\"F32\"", "safetensors"},
      {"tjgg\x03", "old format"},
      {"FUGG", "big-endian"},
      {"hello, world", "'hell', expected 'GGUF'"},
      {"GG", "2 bytes"},
  };
  for (const auto& [bytes, piece] : cases)
    EXPECT_NE(refusal(bytes).find(piece), std::string::npos) << refusal(bytes);
}

TEST(GgufFile, EveryCutOfAFileIsRefused) {
  const std::string whole = testing::tiny_model({.layers = 1, .embedding = 32}).bytes();
  MemFileSystem files;
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 7000 ? 1 : 97) {
    files.add("m.gguf", whole.substr(0, bytes));
    ASSERT_FALSE(judge("m.gguf", files)) << bytes;
  }
  files.add("m.gguf", whole);
  const auto result = judge("m.gguf", files);
  EXPECT_TRUE(result) << result.error().message;
}

// Whatever one damaged byte does, it is an answer and not a crash.
TEST(GgufFile, AnyChangedByteOfTheHeadIsAnswered) {
  const std::string whole = testing::tiny_model({.layers = 1, .embedding = 32}).bytes();
  int refused = 0;
  for (std::size_t at = 0; at < 7000; ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1u << (at % 8)));
    refused += refusal(std::move(bytes)).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

TEST(GgufFile, TypedAccess) {
  GgufWriter writer;
  writer.set_unsigned("u", 7);
  writer.set_signed("s", -3);
  writer.set_float("f", 1.5f);
  writer.set_bool("b", true);
  writer.set_string("t", "text");
  const std::vector<std::string> words = {"a", "", "c"};
  writer.set_strings("words", words);
  const std::vector<std::int32_t> numbers = {1, -2, 3};
  writer.set_integers("numbers", numbers);
  const std::vector<float> floats = {0.5f, 2};
  writer.set_floats("floats", floats);
  MemFileSystem files;
  files.add("k.gguf", writer.bytes());
  const auto file = GgufFile::open("k.gguf", files);
  ASSERT_TRUE(file) << file.error().message;
  const GgufFile& f = **file;
  EXPECT_EQ(f.get_unsigned("u").value(), 7u);
  EXPECT_EQ(f.get_unsigned("s").error().message.find("k.gguf: s is -3 (int32)"), 0u);
  EXPECT_EQ(f.get_float("f").value(), 1.5);
  EXPECT_EQ(f.get_float("u").value(), 7.0);
  EXPECT_TRUE(f.get_bool("b").value());
  EXPECT_EQ(f.get_string("t").value(), "text");
  EXPECT_EQ(f.get_strings("words").value()[2], "c");
  EXPECT_EQ(f.get_integers("numbers").value(), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(f.get_floats("floats").value(), floats);
  EXPECT_EQ(f.get_string("u").error().message, "k.gguf: u has type uint32, expected string");
  EXPECT_EQ(f.get_bool("none").error().message, "k.gguf: missing metadata none");
  EXPECT_EQ(
      f.get_floats("numbers").error().message,
      "k.gguf: numbers has type an array of int32, expected an array of float32"
  );
  EXPECT_EQ(f.find_key("nothing"), nullptr);
  EXPECT_EQ(f.metadata().size(), 8u);
}

TEST(GgufFile, FileSystemErrorsPassThrough) {
  MemFileSystem files;
  EXPECT_EQ(GgufFile::open("none.gguf", files).error().code, Code::kNotFound);
  files.add("m.gguf", testing::tiny_model({}).bytes());
  files.cut("m.gguf", 1000);
  EXPECT_EQ(GgufFile::open("m.gguf", files).error().code, Code::kBadFile);
  files.fail_open("m.gguf", Error{Code::kIo, "m.gguf: Input/output error", {}});
  EXPECT_EQ(GgufFile::open("m.gguf", files).error().code, Code::kIo);
}

}  // namespace
}  // namespace artery::model
