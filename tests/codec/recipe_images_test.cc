// Images against ../shared/golden/codec/images.jsonl: what `artery codec image` writes for each
// line, by the code that writes it. Sizes, tokens, kinds of errors, messages and quotas must be
// equal; pixels within 6 levels; the bytes of the WebP are its library's own.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <string_view>

#include "cli/image_case.h"
#include "codec/api/json_style.h"
#include "image_lines.h"

namespace artery::cli {
namespace {

using codec::api::Json;
using codec::api::JsonMember;
using codec::api::JsonTree;

constexpr double kLevels = 6;

class NoFetcher final : public codec::image::ImageFetcher {
 public:
  tl::expected<std::string, Failure> fetch(const std::string& url, std::size_t) override {
    using Kind = codec::image::ImageError::Kind;
    // A URL without a host asks for no address.
    if (url == "http://") return tl::unexpected(Failure{Kind::kFetch, true, "no host"});
    return tl::unexpected(Failure{Kind::kDestinationRejected, false, "no address is admitted"});
  }
};

bool is_close(const Json& wanted, const Json& got) {
  if (wanted.items().size() != got.items().size()) return false;
  for (std::size_t i = 0; i < wanted.items().size(); ++i) {
    const auto a = wanted.items()[i].items(), b = got.items()[i].items();
    for (std::size_t k = 0; k < 5; ++k)
      if (std::abs(a[k].number() - b[k].number()) > (k < 2 ? 0 : kLevels)) return false;
  }
  return true;
}

bool is_librarys(std::string_view field) {
  return field == "bytes" || field == "sha256" || field == "data_base64";
}

std::string difference(const Json& wanted, const Json& got) {
  for (const JsonMember& member : wanted.members()) {
    if (is_librarys(member.key)) continue;
    const Json* const found = got.find(member.key);
    if (found == nullptr) return std::string(member.key) + " is missing";
    if (member.key == "samples" ? is_close(member.value, *found)
                                : codec::api::to_json(member.value) == codec::api::to_json(*found))
      continue;
    return std::string(member.key) + "\n  wanted " + codec::api::to_json(member.value) +
           "\n  got    " + codec::api::to_json(*found);
  }
  return "";
}

TEST(RecipeImages, EveryLineOfTheRecord) {
  const auto lines = codec::image_lines();
  if (lines.empty()) GTEST_SKIP() << "no ../shared/golden/codec";
  NoFetcher fetcher;
  ImageCases cases(fetcher);
  int failures = 0, equal_bytes = 0, images = 0;
  for (const std::string& text : lines) {
    const auto line = JsonTree::parse(text);
    ASSERT_TRUE(line) << line.error();
    const auto answer = cases.answer(line->root());
    ASSERT_TRUE(answer) << text.substr(0, 200) << '\n' << answer.error().message;
    const std::string written = '{' + *answer + '}';
    const auto got = JsonTree::parse(written);
    ASSERT_TRUE(got) << written;
    for (const char* const field : {"result", "error", "quota_after"}) {
      const Json* const wanted = line->root().find(field);
      const Json* const found = got->root().find(field);
      std::string wrong;
      if ((wanted == nullptr) != (found == nullptr)) {
        wrong = std::string(field) + " is " + (found == nullptr ? "missing" : "too much");
      } else if (wanted != nullptr && wanted->is_object()) {
        wrong = difference(*wanted, *found);
        if (const Json* const sha = wanted->find("sha256")) {
          ++images;
          if (found->find("sha256")->text() == sha->text()) ++equal_bytes;
        }
      } else if (wanted != nullptr) {
        if (codec::api::to_json(*wanted) != codec::api::to_json(*found))
          wrong = std::string(field) + ' ' + codec::api::to_json(*found);
      }
      if (wrong.empty()) continue;
      EXPECT_LT(++failures, 20) << "too many failures";
      ADD_FAILURE() << codec::api::to_json(*line->root().find("id")) << ": " << wrong;
      ASSERT_LT(failures, 20);
    }
  }
  EXPECT_EQ(lines.size(), 787U);
  RecordProperty("equal_bytes", equal_bytes);
  std::printf("%d of %d images are the recorded WebP to the byte\n", equal_bytes, images);
}

}  // namespace
}  // namespace artery::cli
