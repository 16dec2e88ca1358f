#pragma once
// One answer on the wire: parts of choices to the bytes its API wants, streamed or whole, with that
// API's errors and signs of life. One for each generation, used under its lock; knows no sockets
// and no engine calls.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer.h"
#include "server/api/errors.h"

namespace artery::server::api {

// Where the answer stands.
struct Progress {
  AnswerUsage usage;
  AnswerTimings timings;
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // True when part() wants to know the progress at every part, which costs.
  virtual bool shows_progress() const { return false; }
  // Streaming: text of the event stream, maybe empty. `is_last`: the part ends the last choice.
  // `now`: null unless is_last or shows_progress().
  virtual std::string part(const ChoicePart& part, const Progress* now, bool is_last) = 0;
  // What ends the stream of an answer that is complete.
  virtual std::string end(const Progress& now) = 0;
  // What ends it when it fails.
  virtual std::string failure(const ApiError& error) = 0;
  // What keeps a silent stream alive.
  virtual std::string heartbeat() const = 0;

  // Not streaming: the body. `choices[i]` has all text and tokens of choice i, and its ending.
  virtual std::string whole(const std::vector<ChoicePart>& choices, const Progress& now) = 0;
  virtual ErrorShape error_shape() const = 0;
};

struct OpenAiWish {
  bool is_chat = false;
  bool show_logprobs = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // in every chunk
  bool timings = false;
};
// Chat Completions and Completions.
std::unique_ptr<AnswerWriter> make_openai_writer(AnswerHead head, OpenAiWish wish);

// An event of a stream: "event: NAME\ndata: JSON\n\n", without the first line when there is no
// name.
void append_event(std::string& out, std::string_view name, std::string_view json);

}  // namespace artery::server::api
