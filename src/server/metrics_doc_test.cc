// docs/metrics.md is what the program prints: this test writes the table again and compares.
// ARTERY_REGEN=1 writes the file.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "server/metrics.h"

namespace artery::server {
namespace {

constexpr char kHead[] =
    "# Metrics\n\n"
    "`GET /metrics`, Prometheus text format. Every name carries the labels `model_name` and\n"
    "`engine`; suffixes, labels and bucket bounds are vLLM's, so boards port by replacing the\n"
    "prefix, and `--metrics-compat vllm` exports the literal `vllm:` names too.\n\n"
    "Written by `ARTERY_REGEN=1 build/release/src/server/server_test "
    "--gtest_filter=MetricsDoc.*`, compared in `server_test`.\n\n"
    "| name | type | meaning |\n|---|---|---|\n";

struct Family {
  std::string type, help;
};

// "# HELP name text" and "# TYPE name type" lines.
std::map<std::string, Family> families_of(const std::string& text) {
  std::map<std::string, Family> families;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name, rest;
    if (!(words >> hash >> kind >> name) || hash != "#") continue;
    std::getline(words >> std::ws, rest);
    (kind == "HELP" ? families[name].help : families[name].type) = rest;
  }
  return families;
}

std::string document() {
  const std::string text = make_metrics("m", 8192, false)
                               ->render(engine::Status{}, ServerCounts{}, kvstore::StoreStatus{});
  std::string out = kHead;
  for (const auto& [name, family] : families_of(text)) {
    out += fmt::format("| `{}` | {} | {} |\n", name, family.type, family.help);
  }
  return out;
}

TEST(MetricsDoc, IsWhatTheProgramPrints) {
  const std::string path = std::string(ARTERY_SOURCE_DIR) + "/docs/metrics.md";
  const std::string expected = document();
  if (std::getenv("ARTERY_REGEN") != nullptr) std::ofstream(path) << expected;
  std::ostringstream there;
  there << std::ifstream(path).rdbuf();
  EXPECT_EQ(there.str(), expected);
}

}  // namespace
}  // namespace artery::server
