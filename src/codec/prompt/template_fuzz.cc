// Any bytes as template and context: no crash, no hang. The first byte chooses options; a zero byte
// parts the template from the messages, tools and variables.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "codec/prompt/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace artery::codec;
  if (size < 2) return 0;
  const std::uint8_t options = data[0];
  std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  std::vector<std::string> parts;
  while (parts.size() < 4) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    parts.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  auto made = ChatTemplate::make(
      parts[0], {.bos = "<s>", .eos = "</s>", .control = {"<s>", "</s>", "<|im_end|>", "{{"}}
  );
  if (!made) return 0;
  ChatInput input;
  const bool as_json = (options & 1) != 0;
  input.messages.push_back({"user", parts[1], as_json ? parts[1] : ""});
  input.messages.push_back({"assistant", parts[2], ""});
  input.tools_json = (options & 2) != 0 ? parts[2] : "";
  input.kwargs_json = parts[3];
  input.add_generation_prompt = (options & 4) != 0;
  input.continue_final_message = (options & 8) != 0;
  input.as_sent = (options & 16) != 0;
  input.now = "2026-07-26 12:34:56";
  auto prompt = (*made)->render(input);
  if (!prompt) return 0;
  std::size_t at = 0;
  for (const ByteRange& range : prompt->literal) {
    if (range.begin < at || range.end <= range.begin || range.end > prompt->text.size())
      __builtin_trap();
    at = range.end;
  }
  return 0;
}
