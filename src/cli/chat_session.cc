#include "cli/chat_session.h"

#include "codec/deepseek/encoding.h"
#include "codec/stream/detokenizer.h"

namespace artery::cli {
namespace {
// How long an interrupt may go unnoticed.
constexpr int kWaitMs = 50;
}  // namespace

Result<ChatSession> ChatSession::make(const LoadedModel& loaded, ChatSettings settings) {
  if (!settings.raw && loaded.chat_template == nullptr && !loaded.deepseek)
    return fail(
        Code::kUnsupported,
        "{}; `--raw` continues the text without a template",
        loaded.chat_template_error
    );
  return ChatSession(loaded, settings);
}

Result<std::vector<TokenId>> ChatSession::prompt() const {
  const codec::Tokenizer& tokenizer = *loaded_->tokenizer;
  if (settings_.raw)
    return tokenizer.encode(history_.back().content, {.add_special = true, .parse_special = false});
  if (loaded_->deepseek) return deepseek_prompt();
  codec::ChatInput input;
  input.messages = history_;
  const codec::RenderedPrompt rendered = TRY(loaded_->chat_template->render(input));
  return tokenizer.encode(
      rendered.text, {.add_special = true, .parse_special = true, .literal = rendered.literal}
  );
}

// Without thinking: what is shown is the whole answer.
Result<std::vector<TokenId>> ChatSession::deepseek_prompt() const {
  codec::api::Conversation conversation;
  conversation.thinking = false;
  for (const codec::ChatMessage& message : history_) {
    using codec::api::Role;
    codec::api::Message& turn = conversation.messages.emplace_back();
    turn.role = message.role == "assistant" ? Role::kAssistant : Role::kUser;
    turn.content = message.content;
  }
  const auto rendered = codec::deepseek::render(conversation, *loaded_->deepseek);
  return codec::deepseek::encode(rendered, *loaded_->tokenizer);
}

Result<ChatSession::Answer> ChatSession::say(
    const std::string& text,
    const std::function<void(std::string_view)>& show,
    const std::function<bool()>& interrupted
) {
  const codec::Tokenizer& tokenizer = *loaded_->tokenizer;
  if (settings_.raw) history_.clear();
  history_.push_back({"user", text, ""});
  engine::Request request;
  Result<std::vector<TokenId>> ids = prompt();
  if (!ids) {
    history_.pop_back();
    return tl::unexpected<Error>(ids.error());
  }
  request.prompt = ids.take();
  request.max_tokens = settings_.max_tokens;
  request.sampling.temperature = settings_.temperature;
  request.sampling.seed = settings_.seed;
  request.sampling.stop_ids = tokenizer.vocab().end_of_generation;
  const auto events = std::make_shared<engine::EventStream>();
  Result<RequestId> id = loaded_->engine->submit(std::move(request), events);
  if (!id) {
    history_.pop_back();
    return tl::unexpected<Error>(id.error());
  }
  codec::Detokenizer detokenizer(tokenizer, true, true);
  Answer answer;
  const auto put = [&](const std::string& piece) {
    if (!piece.empty()) show(piece);
    answer.text += piece;
  };
  for (bool cancelled = false;;) {
    if (!cancelled && interrupted()) {
      loaded_->engine->cancel(*id);
      cancelled = true;
    }
    const std::optional<engine::Event> event = events->wait(kWaitMs);
    if (!event) continue;
    for (const TokenId token : event->token_ids) put(detokenizer.push(token));
    if (!event->finish) continue;
    put(detokenizer.finish());
    answer.finish = *event->finish;
    break;
  }
  history_.push_back({"assistant", answer.text, ""});
  return answer;
}

}  // namespace artery::cli
