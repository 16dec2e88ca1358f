#include "image_lines.h"

#include <fstream>
#include <string_view>

namespace artery::codec {
namespace {

void replace(std::string& line, std::string_view from, const std::string& to) {
  for (std::size_t at = line.find(from); at != line.npos; at = line.find(from, at + to.size()))
    line.replace(at, from.size(), to);
}

bool is_case(const std::string& line, std::string_view id) {
  return line.substr(0, 80).find('"' + std::string(id) + '"') != line.npos;
}

// The record gives length and digest of these; this is what they were.
void complete(std::string& line) {
  const std::string nothing = R"("value":null)";
  for (const std::size_t mib : {22U, 32U, 33U}) {
    const std::string length = std::to_string(mib << 20);
    const std::string recorded = nothing + R"(,"length":)" + length;
    replace(line, recorded, R"("repeat":["\u0000",)" + length + R"(],"length":)" + length);
  }
  if (is_case(line, "resolve/second-bad"))
    replace(line, nothing + R"(,"length":4,)", R"("value":"bm9wZQ==","length":4,)");
  if (is_case(line, "resolve/empty-bytes")) replace(line, nothing, R"("value":"")");
  if (is_case(line, "resolve/url-long"))
    replace(line, nothing, R"("value":"http://127.0.0.1/)" + std::string(9000, 'a') + '"');
  // The smallest image: 1 x 1.
  if (line.find(R"("resolve_more")") != line.npos)
    replace(
        line,
        R"("length":69)",
        R"("sha256":"c47dd9465c00e9a0c8b85e9ea58d3034a0d23b9cf926113602f3460752a4eb96")"
    );
}

}  // namespace

std::vector<std::string> image_lines() {
  std::ifstream in(std::string(ARTERY_SOURCE_DIR) + "/../shared/golden/codec/images.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    complete(line);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace artery::codec
