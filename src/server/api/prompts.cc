#include "server/api/prompts.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <utility>

#include "codec/infill.h"
#include "server/api/json_reader.h"
#include "server/api/json_writer.h"

namespace artery::server::api {

namespace {
constexpr std::size_t kDroppedTextFactor = 4;
constexpr int kMessageDepthMax = 256;  // the request was read with less

void set_field(codec::ChatMessage& message, std::string_view key, const std::string& value) {
  auto parsed = parse_json(message.json, kMessageDepthMax);
  if (!parsed || !parsed->is_object()) return;
  parsed->get_object()[key] = value;
  message.json = to_json(*parsed);
}

// System messages behind the first one as the user's: where they stand, so that the prompt before
// them stays what it was. `joined`: users' messages in a row are one.
codec::ChatInput with_notes(const codec::ChatInput& input, bool joined) {
  codec::ChatInput out = input;
  out.messages.clear();
  for (const codec::ChatMessage& given : input.messages) {
    codec::ChatMessage message = given;
    if (message.role == "system" && !out.messages.empty()) {
      message.role = "user";
      set_field(message, "role", message.role);
    }
    const bool joins = joined && message.role == "user" && !out.messages.empty() &&
                       out.messages.back().role == "user";
    if (!joins) {
      out.messages.push_back(std::move(message));
      continue;
    }
    codec::ChatMessage& before = out.messages.back();
    before.content += "\n\n" + message.content;
    set_field(before, "content", before.content);
  }
  return out;
}

// Strict templates refuse a system message that is not the first, which newer clients send (FR-B5).
Result<codec::RenderedPrompt> render(
    const codec::ChatTemplate& chat_template, const codec::ChatInput& input
) {
  auto rendered = chat_template.render(input);
  if (rendered || rendered.error().code != Code::kInvalidArgument) return rendered;
  const bool has_late_system = std::any_of(
      input.messages.begin() + 1,
      input.messages.end(),
      [](const codec::ChatMessage& message) { return message.role == "system"; }
  );
  if (!has_late_system) return rendered;
  for (const bool joined : {false, true}) {
    auto again = chat_template.render(with_notes(input, joined));
    if (again) return again;
  }
  return rendered;
}

}  // namespace

std::size_t prompt_bytes_max(const codec::Tokenizer& tokenizer, std::int64_t max_model_len) {
  std::size_t longest = 1;
  for (std::size_t id = 0; id < tokenizer.vocab().tokens.size(); ++id) {
    longest = std::max(longest, tokenizer.piece(static_cast<TokenId>(id)).size());
  }
  return kDroppedTextFactor * longest * static_cast<std::size_t>(max_model_len);
}

Result<> check_prompt_bytes(
    std::size_t bytes, std::size_t bytes_max, std::int64_t max_model_len, const std::string& field
) {
  if (bytes_max == 0 || bytes <= bytes_max) return {};
  Error error{
      Code::kContextLength,
      fmt::format(
          "the prompt is {} bytes long, which is more than {} tokens, and this model's context is "
          "{} tokens; shorten the prompt",
          bytes,
          bytes / (bytes_max / static_cast<std::size_t>(max_model_len)),
          max_model_len
      ),
      field
  };
  return tl::unexpected<Error>(std::move(error));
}

Result<TokenPrompt> chat_prompt(
    const Serving& serving, const codec::ChatInput& input, bool add_special
) {
  if (!serving.chat_template) {
    const std::string& why = serving.chat_template_error;
    return fail(
        Code::kUnsupported,
        "this model cannot chat: {}; use /v1/completions or --chat-template",
        why.empty() ? "it has no chat template" : why
    );
  }
  auto rendered = render(*serving.chat_template, input);
  if (!rendered) {
    Error error = rendered.error();
    if (error.code == Code::kInvalidArgument && error.field.empty()) error.field = "messages";
    return tl::unexpected<Error>(std::move(error));
  }
  TokenPrompt prompt;
  codec::EncodeOptions options;
  options.add_special = add_special;
  options.parse_special = true;
  options.literal = rendered->literal;
  prompt.ids = serving.tokenizer->encode(rendered->text, options);
  prompt.text = std::move(rendered->text);
  if (prompt.ids.empty()) {
    return fail_field("messages", "messages give an empty prompt with this model's template");
  }
  return prompt;
}

Result<TokenPrompt> text_prompt(
    const Serving& serving, const std::string& text, bool add_special, const std::string& field
) {
  TokenPrompt prompt;
  codec::EncodeOptions options;
  options.add_special = add_special;
  options.parse_special = true;
  prompt.ids = serving.tokenizer->encode(text, options);
  prompt.text = text;
  if (prompt.ids.empty()) return fail_field(field, "{} is empty", field);
  return prompt;
}

Result<TokenPrompt> gap_prompt(
    const Serving& serving, const std::string& before, const std::string& behind
) {
  if (!serving.tokenizer->vocab().infill.known()) {
    return fail_field(
        "suffix",
        "suffix: this model was not made for text insertion, its vocabulary has no tokens that "
        "mark "
        "a gap (such as <|fim_prefix|>); leave suffix out"
    );
  }
  TokenPrompt prompt;
  prompt.ids = codec::infill_prompt(*serving.tokenizer, before, behind);
  prompt.text = before;
  return prompt;
}

Result<TokenPrompt> ids_prompt(
    const Serving& serving, std::vector<TokenId> ids, bool skip_special
) {
  TokenPrompt prompt;
  prompt.text = serving.tokenizer->decode(ids, skip_special);
  prompt.ids = std::move(ids);
  return prompt;
}

std::string token_text(const codec::Tokenizer& tokenizer, TokenId id) {
  const std::string_view piece = tokenizer.piece(id);
  if (is_utf8(piece)) return std::string(piece);
  std::string out = "bytes:";
  for (const char c : piece) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace artery::server::api
