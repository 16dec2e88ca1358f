#include "base/npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

namespace artery {
namespace {

std::string file_of(std::string_view header, std::string_view data, char version = 1) {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  }
  file += header;
  file += data;
  return file;
}

Result<NpyArray> parse(std::string_view file) {
  return NpyArray::parse(std::as_bytes(std::span(file)), "a.npy");
}

TEST(Npy, WritesWhatItReads) {
  const std::vector<float> values = {
      1.5f, -0.0f, std::numeric_limits<float>::infinity(), 0x1p-149f, 3.0f, std::nanf("")
  };
  const std::vector<std::int64_t> shape = {2, 3};
  const std::string path = testing::TempDir() + "artery_npy_test.npy";
  ASSERT_TRUE(write_npy(path, shape, values).has_value());
  const Result<NpyArray> array = NpyArray::read(system_file_system(), path);
  ASSERT_TRUE(array.has_value()) << array.error().message;
  EXPECT_EQ(array->shape(), shape);
  const auto read = array->float32();
  ASSERT_TRUE(read.has_value());
  ASSERT_EQ(read->size(), values.size());
  EXPECT_EQ(std::memcmp(read->data(), values.data(), values.size() * 4), 0);
  std::filesystem::remove(path);
}

TEST(Npy, DataStartsAtAMultipleOf64AndShapesOfAnyRankComeBack) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {0}, {7}, {1, 1, 1}, {3, 0, 5}, {1234567, 0}
  };
  for (const auto& shape : shapes) {
    std::size_t count = 1;
    for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
    const std::vector<float> values(count, 2.0f);
    const std::string file = format_npy(shape, values);
    EXPECT_EQ((file.size() - count * 4) % 64, 0u);
    const Result<NpyArray> array = parse(file);
    ASSERT_TRUE(array.has_value()) << array.error().message;
    EXPECT_EQ(array->shape(), shape);
    EXPECT_EQ(array->size(), count);
  }
}

TEST(Npy, ReadsEveryTypeAndVersion2) {
  const std::string eight("\x01\0\0\0\0\0\0\0", 8);
  const auto header = [](std::string_view type, int count) {
    return fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},)}}\n", type, count);
  };
  EXPECT_EQ(parse(file_of(header("|u1", 8), eight))->uint8().value()[0], 1);
  EXPECT_EQ(parse(file_of(header("<f2", 4), eight))->float16().value()[0], 1);
  EXPECT_EQ(parse(file_of(header("<i4", 2), eight))->int32().value()[0], 1);
  EXPECT_EQ(parse(file_of(header("<i8", 1), eight, 2))->int64().value()[0], 1);
  EXPECT_EQ(parse(file_of(header("<f4", 2), eight, 2))->float32().value()[0], 0x1p-149f);
  EXPECT_EQ(parse(file_of(header("<f8", 1), eight))->float64().value()[0], 0x1p-1074);
}

TEST(Npy, ReadingAnotherTypeIsAnErrorThatNamesBoth) {
  const Result<NpyArray> array = parse(format_npy(std::vector<std::int64_t>{1}, {{1.0f}}));
  ASSERT_TRUE(array.has_value());
  const auto wrong = array->float64();
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message, "a.npy: holds values of type '<f4', expected '<f8'");
}

TEST(Npy, RefusesEveryTruncation) {
  const std::vector<float> values = {1, 2, 3};
  const std::string file = format_npy(std::vector<std::int64_t>{3}, values);
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    const Result<NpyArray> array = parse(std::string_view(file).substr(0, bytes));
    ASSERT_FALSE(array.has_value()) << bytes;
    EXPECT_EQ(array.error().code, Code::kBadFile) << bytes;
  }
  EXPECT_FALSE(parse(file + "x").has_value());
}

TEST(Npy, RefusesBadHeaders) {
  struct Case {
    std::string_view header;
    Code code;
  };
  const Case cases[] = {
      {"", Code::kBadFile},
      {"{}", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': False}", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", Code::kBadFile},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", Code::kBadFile
      },
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", Code::kBadFile
      },
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", Code::kBadFile},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", Code::kUnsupported},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1)}", Code::kUnsupported},
  };
  for (const Case& bad : cases) {
    const Result<NpyArray> array = parse(file_of(bad.header, "0123"));
    ASSERT_FALSE(array.has_value()) << bad.header;
    EXPECT_EQ(array.error().code, bad.code) << bad.header;
  }
  EXPECT_EQ(parse(file_of("{}", "", 3)).error().code, Code::kUnsupported);
}

TEST(Npy, AMissingFileOrFolderIsNotFound) {
  const std::string path = testing::TempDir() + "no-such-folder/a.npy";
  EXPECT_EQ(NpyArray::read(system_file_system(), path).error().code, Code::kNotFound);
  const std::vector<float> one = {1};
  EXPECT_EQ(write_npy(path, std::vector<std::int64_t>{1}, one).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace artery
