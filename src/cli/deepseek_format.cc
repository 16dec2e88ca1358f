#include "cli/deepseek_format.h"

#include "codec/deepseek/encoding.h"

namespace artery::cli {

using codec::api::ModelVersion;

std::optional<ModelVersion> deepseek_format(
    std::string_view chosen, std::string_view architecture
) {
  if (chosen == "deepseek-v4") return ModelVersion::kV4;
  if (chosen == "deepseek-v4.1") return ModelVersion::kV41;
  if (!chosen.empty()) return std::nullopt;
  if (architecture == "deepseek_v4" || architecture == "deepseek4") return ModelVersion::kV4;
  if (architecture == "deepseek_v41" || architecture == "deepseek41") return ModelVersion::kV41;
  return std::nullopt;
}

Result<> check_deepseek_vocabulary(ModelVersion version, const codec::Tokenizer& tokenizer) {
  // A conversation with each of the tokens that prompts are made of.
  codec::api::Conversation all;
  all.tools.emplace_back().name = "f";
  all.tools.back().parameters = "{}";
  const auto say = [&](codec::api::Role role) -> codec::api::Message& {
    codec::api::Message& message = all.messages.emplace_back();
    message.role = role;
    message.content = "a";
    return message;
  };
  say(codec::api::Role::kSystem);
  say(codec::api::Role::kUser);
  codec::api::Message& answer = say(codec::api::Role::kAssistant);
  answer.reasoning = "a";
  answer.calls.push_back({"1", "f", "{}"});
  say(codec::api::Role::kTool).call_id = "1";  // `answer` is not valid any more
  const auto ids = codec::deepseek::encode(codec::deepseek::render(all, version), tokenizer);
  if (ids) return {};
  return fail(
      Code::kBadFile,
      "the vocabulary is not one of DeepSeek's: {}; choose another --chat-template",
      ids.error().message
  );
}

}  // namespace artery::cli
