#pragma once
// ChatML and the Llama forms in plain C++. They show roles and contents only; what came with the
// messages is literal as a whole. Immutable after construction, any thread. Private to the prompt
// folder and its tests.

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/prompt/chat_template.h"

namespace artery::codec {

enum class Form {
  kChatMl,   // <|im_start|>role\ncontent<|im_end|>\n
  kLlama2,   // [INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] answer </s>
  kLlama3,   // <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
  kMistral,  // [INST] user [/INST]answer</s>, the system text in the last user turn
};

struct FormShape {
  Form form = Form::kChatMl;
  std::string default_system = {};  // ChatML: used when the first message is not the system's
  // Llama 3.1 and later: a system turn that starts with the knowledge date and `date`, or the day
  // of the render when `date` is empty.
  bool knowledge_header = false;
  std::string date = {};
  bool spaced = true;        // Mistral: spaces inside [INST] [/INST] (before the Tekken tokenizers)
  bool knows_tools = false;  // the Jinja source can show tools, this form cannot
};

// Errors of render: kInvalidArgument when roles do not alternate (Llama 2, Mistral), kUnsupported
// for tools when the source knew them.
std::unique_ptr<ChatTemplate> make_builtin(
    std::string source, FormShape shape, TemplateTokens tokens
);

// "2026-07-26 12:34:56" by the machine's clock and zone.
std::string local_time_text();

}  // namespace artery::codec
