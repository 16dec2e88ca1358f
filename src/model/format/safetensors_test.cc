#include "model/format/safetensors.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <ctime>
#include <filesystem>
#include <map>

#include "testing/mem_file_system.h"
#include "testing/safetensors_writer.h"

namespace artery::model {
namespace {

namespace json = boost::json;
using testing::MemFileSystem;
using testing::SafetensorsWriter;

const std::string kShared = std::string(ARTERY_SOURCE_DIR) + "/../shared/";
const std::string kBadFiles = kShared + "golden/models/bad-files/";

json::value read_json(const std::string& path) {
  const auto text = system_file_system().read(path, std::size_t{1} << 28);
  return text ? json::parse(*text) : json::value();
}

// What each message must hold besides the file's name; the manifest's should_report in our words.
const std::map<std::string, std::vector<std::string>> kMessages = {
    {"st_empty", {"file is empty"}},
    {"st_7_bytes", {"a file of 7 bytes is too small for a header length"}},
    {"st_header_len_0", {"header length is 0"}},
    {"st_header_len_past_end", {"header length 1000000 exceeds the file"}},
    {"st_header_len_2p63", {"header length 9223372036854775808 exceeds the limit of 100 MB"}},
    {"st_header_len_minus_1", {"the header is not valid JSON"}},
    {"st_not_json", {"the header is not valid JSON"}},
    {"st_json_array", {"the header is a JSON array, expected an object"}},
    {"st_not_utf8", {"the header is not valid UTF-8"}},
    {"st_dtype_unknown", {"tensor b has unknown dtype 'F13'"}},
    {"st_shape_negative", {"tensor b: negative dimension"}},
    {"st_shape_float", {"tensor b: dimension 4.5 is not an integer"}},
    {"st_shape_1e999", {"tensor b: dimension", "out of range"}},
    {"st_shape_overflow", {"tensor b: element count overflows 64 bits"}},
    {"st_offsets_reversed", {"tensor b: data_offsets [24, 16] end before they begin"}},
    {"st_offsets_past_end",
     {"tensor b: data_offsets end at 2400, the data has 24 bytes", "F16 [4] needs 8"}},
    {"st_offsets_overlap", {"tensors a and b overlap"}},
    {"st_offsets_hole", {"bytes 16 to 24 of the data belong to no tensor"}},
    {"st_offsets_three", {"tensor b: data_offsets must be two numbers"}},
    {"st_size_mismatch", {"tensor b: data_offsets hold 8 bytes, but F16 [5] needs 10"}},
    {"st_trailing_bytes", {"13 bytes after the last tensor"}},
    {"st_data_truncated", {"data ends at 20 bytes, tensor b needs 24"}},
    {"st_no_offsets", {"tensor b: data_offsets missing"}},
    {"st_no_dtype", {"tensor b: dtype missing"}},
    {"st_duplicate_name", {"duplicate tensor name a"}},
    {"st_metadata_not_strings", {"__metadata__ values must be strings"}},
    {"st_json_bomb_arrays", {"JSON nested too deeply"}},
    {"st_json_many_tensors_no_data",
     {"2000 of 2000 tensors claim bytes that the file does not have"}},
    {"st_is_gguf", {"not a safetensors file: it starts with the GGUF magic"}},
    {"st_is_html", {"not a safetensors file: it looks like an HTML page (a failed download?)"}},
    {"st_is_lfs_pointer", {"not a safetensors file", "Git LFS pointer; fetch the real file"}},
    {"st_fp4_odd_count", {"tensor b: F4 with 3 values is not a whole number of bytes"}},
};

TEST(SafetensorsBadFiles, EachIsRefusedWithItsReason) {
  if (!std::filesystem::exists(kBadFiles + "manifest.json"))
    GTEST_SKIP() << "../shared/golden is not here";
  const json::value manifest = read_json(kBadFiles + "manifest.json");
  std::size_t count = 0;
  for (const json::value& entry : manifest.at("bad").as_array()) {
    const std::string name(entry.at("file").as_string());
    if (!name.ends_with(".safetensors")) continue;
    SCOPED_TRACE(name);
    const auto file = SafetensorsFile::open(kBadFiles + name);
    ++count;
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, Code::kBadFile);
    EXPECT_NE(file.error().message.find(name), std::string::npos) << file.error().message;
    const auto pieces = kMessages.find(name.substr(0, name.find('.')));
    ASSERT_NE(pieces, kMessages.end());
    for (const std::string& piece : pieces->second)
      EXPECT_NE(file.error().message.find(piece), std::string::npos) << file.error().message;
  }
  EXPECT_EQ(count, kMessages.size());
}

TEST(SafetensorsBadFiles, OddOnesLoad) {
  const std::map<std::string, std::size_t> tensors = {
      {"odd_st_plain", 2},
      {"odd_st_metadata_and_spaces", 2},
      {"odd_st_empty_and_scalar", 2},
      {"odd_st_no_tensors", 0},
      {"odd_st_unordered_names", 2},
      {"odd_st_all_dtypes", 15},
  };
  if (!std::filesystem::exists(kBadFiles + "manifest.json"))
    GTEST_SKIP() << "../shared/golden is not here";
  for (const auto& [name, count] : tensors) {
    SCOPED_TRACE(name);
    const auto file = SafetensorsFile::open(kBadFiles + name + ".safetensors");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors().size(), count);
    for (const StTensor& tensor : file->tensors()) {
      EXPECT_EQ(file->data(tensor).size(), tensor.bytes);
      if (name == "odd_st_all_dtypes") {
        EXPECT_EQ(tensor.name, "t." + std::string(model::name(tensor.type)));
        EXPECT_EQ(tensor.bytes * 8, 3u * static_cast<std::uint64_t>(bits(tensor.type)));
      }
    }
  }
}

std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}

std::string refusal(std::string bytes) {
  MemFileSystem files;
  files.add("m.safetensors", std::move(bytes));
  const auto file = SafetensorsFile::open("m.safetensors", files);
  return file ? "" : file.error().message;
}

// FR-F2 of ../shared/spec/field-reports.md.
TEST(SafetensorsFieldReports, DamagedShardsNameBothSizes) {
  const std::string end_past_file =
      "37000000000000007b2277223a7b226474797065223a22463332222c227368617065223a5b345d2c226461746"
      "15f6f666673657473223a5b302c31365d7d7d0000000000000000";
  EXPECT_EQ(
      refusal(from_hex(end_past_file)),
      "m.safetensors: data ends at 8 bytes, tensor w needs 16: its data_offsets end at 16, the "
      "data has 8 bytes; fetch the file again"
  );
  const std::string overlap =
      "6c000000000000007b2261223a7b226474797065223a22463332222c227368617065223a5b325d2c226461746"
      "15f6f666673657473223a5b302c385d7d2c2262223a7b226474797065223a22463332222c22736861706522"
      "3a5b325d2c22646174615f6f666673657473223a5b342c31325d7d7d000000000000000000000000";
  EXPECT_NE(refusal(from_hex(overlap)).find("tensors a and b overlap"), std::string::npos);
  SafetensorsWriter writer;
  writer.set_values("w", "F32", {4, 1024}, std::vector<float>(4096, 1.0f));
  const std::string whole = writer.bytes();
  EXPECT_EQ(refusal(whole), "");
  for (const std::size_t cut : {std::size_t{1}, std::size_t{4096}, whole.size() / 2}) {
    const std::string text = refusal(whole.substr(0, whole.size() - cut));
    EXPECT_NE(text.find("needs 16384"), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("data ends at {}", 16384 - cut)), std::string::npos) << text;
  }
}

TEST(SafetensorsFile, EveryCutIsRefusedAndAnyChangedByteAnswered) {
  SafetensorsWriter writer;
  writer.set_values("a", "F32", {2, 2}, std::vector<float>{1, 2, 3, 4});
  writer.set_values("b", "BF16", {3}, std::vector<float>{1, 2, 3});
  const std::string whole = writer.bytes();
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    ASSERT_NE(refusal(whole.substr(0, bytes)), "") << bytes;
  int refused = 0;
  for (std::size_t at = 0; at < whole.size() - 22; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1u << bit));
      refused += refusal(std::move(bytes)).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(SafetensorsFile, AHeaderLengthMayLookLikeAnotherMagic) {
  SafetensorsWriter writer;
  writer.set_values("a", "F32", {1}, std::vector<float>{1});
  std::string whole = writer.bytes();
  const std::size_t header = whole.size() - 12;
  std::string padded = whole.substr(8, header) + std::string(0x8b1f - header, ' ');
  const std::string length{'\x1f', '\x8b', 0, 0, 0, 0, 0, 0};  // gzip's magic
  EXPECT_EQ(refusal(length + padded + whole.substr(8 + header)), "");
}

TEST(SafetensorsFile, HostileHeadersAreQuickAndSmall) {
  auto file = [](const std::string& header) {
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i)
      length[i] = static_cast<char>((std::uint64_t{header.size()} >> (8 * i)) & 0xFF);
    return length + header;
  };
  const std::clock_t start = std::clock();  // of this process: the machine may be busy
  std::string zeros = "{\"a\":{\"shape\":[0";
  for (int i = 0; i < 4'000'001; ++i) zeros += ",0";
  EXPECT_NE(refusal(file(zeros + "]}}")).find("too many values"), std::string::npos);
  std::string twice = "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}} x";
  EXPECT_NE(refusal(file(twice)).find("more text after the value"), std::string::npos);
  EXPECT_NE(refusal(file("{\"a\":[1]}")).find("tensor a is an array"), std::string::npos);
  EXPECT_NE(refusal(file("3")).find("expected an object"), std::string::npos);
  EXPECT_LT(std::clock() - start, std::clock_t{10} * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace artery::model
