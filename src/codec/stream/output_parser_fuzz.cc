// Any bytes as model output, cut as the input says: the events must not depend on the cuts, and a
// parser must take everything. The first byte chooses the family, the second the cuts.

#include <cstdint>
#include <cstdlib>

#include "codec/stream/output_texts_test.h"

namespace {

using artery::codec::OutputCase;

OutputCase case_of(unsigned choice) {
  constexpr const char* kTools[] = {
      "hermes", "llama3_json", "mistral", "deepseek_v3", "qwen3_coder", "openai", "none", "hermes"
  };
  constexpr const char* kReasoning[] = {
      "qwen3", "none", "mistral", "deepseek_r1", "none", "openai_gptoss", "qwen3", "none"
  };
  OutputCase c{.tool_call = kTools[choice % 8], .reasoning = kReasoning[choice % 8]};
  c.controls = (choice & 8) != 0;
  c.with_tools = (choice & 16) == 0;
  if ((choice & 32) != 0) c.prompt = "<think>\n";
  return c;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const OutputCase c = case_of(data[0]);
  const std::string_view output(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string whole = parse_whole(c, output);
  if (parse_bytes(c, output) != whole) std::abort();
  std::vector<std::size_t> cuts;
  for (std::size_t at = data[1] % 16; at < size; at += 1 + data[1] / 16) cuts.push_back(at);
  if (parse_cut(c, output, cuts) != whole) std::abort();
  return 0;
}
