#include "codec/api/data_url.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace artery::codec::api {
namespace {

std::string mime_of(std::string_view url) {
  const auto read = read_data_url(url);
  return read ? read->mime + (read->is_base64 ? " base64" : "") : "none";
}

std::string bytes_of(std::string_view body) {
  const std::string url = "data:image/png;base64," + std::string(body);
  const auto read = read_data_url(url);
  const auto bytes = read->decode();
  EXPECT_EQ(read->decodes(), bytes.has_value()) << body;
  return bytes.value_or("no base64");
}

TEST(DataUrl, HeadersAsTheFetchStandardReadsThem) {
  EXPECT_EQ(mime_of("data:image/png;base64,AAAA"), "image/png base64");
  EXPECT_EQ(mime_of("DaTa:IMAGE/PNG;BASE64,AAAA"), "image/png base64");
  EXPECT_EQ(mime_of(" \x01 data:image/png;base64,AAAA"), "image/png base64");
  EXPECT_EQ(mime_of("da\nta\t:ima\rge/png; ba\nse64,AAAA"), "image/png base64");
  EXPECT_EQ(mime_of("data: image/png ;name=x;  base64,AAAA"), "image/png base64");
  EXPECT_EQ(mime_of("data:image/png;name=a,b;base64,AAAA"), "image/png");
  EXPECT_EQ(mime_of("data:image/png;base64;x=1,AAAA"), "image/png");
  EXPECT_EQ(mime_of("data:image/pngbase64,AAAA"), "image/pngbase64");
  EXPECT_EQ(mime_of("data:image/png base64,AAAA"), "text/plain");
  EXPECT_EQ(mime_of("data:image/png/x;base64,AAAA"), "text/plain base64");
  EXPECT_EQ(mime_of("data:,"), "text/plain");
  EXPECT_EQ(mime_of("data:;base64,"), "text/plain base64");
  EXPECT_EQ(mime_of("data:base64,"), "text/plain");
  for (const char* const url :
       {"",
        "data",
        "data:",
        "data:image/png;base64",
        "data:image/png#,x",
        "date:,",
        "xdata:,",
        "\x7F"
        "data:,",
        "https://example.com/a,b"})
    EXPECT_EQ(mime_of(url), "none") << url;
}

TEST(DataUrl, Base64IsForgiving) {
  EXPECT_EQ(bytes_of(""), "");
  EXPECT_EQ(bytes_of("aGk="), "hi");
  EXPECT_EQ(bytes_of("aGk"), "hi");
  EXPECT_EQ(bytes_of(" a G\tk =\n"), "hi");
  EXPECT_EQ(bytes_of("%61%47k%3D"), "hi");
  EXPECT_EQ(bytes_of("aGk=#anything @ all"), "hi");
  EXPECT_EQ(bytes_of("aH=="), "h");  // bits behind the last byte are dropped
  EXPECT_EQ(bytes_of("+/+/"), "\xFB\xFF\xBF");
  for (const char* const body :
       {"a",
        "a===",
        "aGk==",
        "aGkx=",
        "aG=k",
        "====",
        "=",
        "@",
        "a@@@",
        "aGk=aGk=",
        "aGkx%",
        "aGkx%2",
        "aGkx%zz",
        "-_-_",
        "aG\x0Bkx",
        "é",
        "aGkx?x",
        "aGkx,x"})
    EXPECT_EQ(bytes_of(body), "no base64") << body;
}

TEST(DataUrl, EveryLengthComesBack) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::mt19937 random(3);
  for (std::size_t size = 0; size < 100; ++size) {
    std::string bytes, text;
    for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(random());
    for (std::size_t i = 0; i < size; i += 3) {
      std::uint32_t bits = 0;
      for (std::size_t k = 0; k < 3; ++k)
        bits = bits << 8 | (i + k < size ? static_cast<unsigned char>(bytes[i + k]) : 0U);
      for (std::size_t k = 0; k < 4; ++k)
        text += i + k > size ? '=' : kAlphabet[bits >> (18 - 6 * k) & 63];
    }
    EXPECT_EQ(bytes_of(text), bytes) << size;
  }
}

TEST(DataUrl, WithoutBase64TheBodyIsPercentDecoded) {
  EXPECT_EQ(read_data_url("data:text/plain,a%20b%zz%4")->decode(), "a b%zz%4");
  EXPECT_EQ(read_data_url("data:,a,b#c")->decode(), "a,b");
}

TEST(DataUrl, KindsOfImages) {
  for (const char* const kind : {"png", "jpeg", "jpg", "gif", "webp"})
    EXPECT_TRUE(read_data_url("data:image/" + std::string(kind) + ";base64,")->is_image()) << kind;
  for (const char* const kind : {"bmp", "svg+xml", "tiff", "*", "x-png", "pjpeg"})
    EXPECT_FALSE(read_data_url("data:image/" + std::string(kind) + ";base64,")->is_image()) << kind;
}

}  // namespace
}  // namespace artery::codec::api
