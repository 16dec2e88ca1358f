#pragma once
// A conversation in one process: keeps the history, so that turn two finds turn one in the prefix
// cache. Used by one thread; the engine works in its own.

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/serving.h"

namespace artery::cli {

struct ChatSettings {
  double temperature = 0.7;
  std::uint64_t seed = 0;
  std::int64_t max_tokens = -1;
  bool raw = false;  // no chat template: the text is continued
};

class ChatSession {
 public:
  // `loaded` outlives the session. kUnsupported when chat is wanted and the model has no template.
  static Result<ChatSession> make(const LoadedModel& loaded, ChatSettings settings);

  struct Answer {
    std::string text;
    engine::Finish finish;
  };
  // Sends one turn; `show` gets the text as it comes. `interrupted()` is asked between events and
  // ends the answer, which stays in the history as far as it came.
  Result<Answer> say(
      const std::string& text,
      const std::function<void(std::string_view)>& show,
      const std::function<bool()>& interrupted
  );

 private:
  ChatSession(const LoadedModel& loaded, ChatSettings settings)
      : loaded_(&loaded), settings_(settings) {}
  Result<std::vector<TokenId>> prompt() const;
  Result<std::vector<TokenId>> deepseek_prompt() const;

  const LoadedModel* loaded_;
  ChatSettings settings_;
  std::vector<codec::ChatMessage> history_;
};

}  // namespace artery::cli
