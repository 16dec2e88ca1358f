#pragma once
// The state of one Responses answer: its items, the events that tell of them and the response
// object. The event generator and the response builder are thin covers of it. Texts are escaped
// once, when they come: the done events and the response repeat bytes. One thread at a time; a copy
// is a snapshot.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/api/generators.h"
#include "codec/api/patch_input.h"

namespace artery::codec::api {

class ResponsesStream {
 public:
  // Without events it only builds the response.
  ResponsesStream(ResponsesAnswer answer, bool with_events);

  // As OutputSink; what comes after the end, or as arguments of no call, is dropped.
  void start();
  void reasoning(std::string_view text);
  void content(std::string_view text, std::span<const TokenLogprob> logprobs);
  void begin_call(std::string_view name, std::string_view id);
  void arguments(std::string_view text);
  void finish(const AnswerFinish& finish);

  std::vector<ApiEvent> take();
  // The response object as it stands now.
  std::string response() const;

 private:
  enum class Kind : std::uint8_t { kNone, kReasoning, kMessage, kFunction, kPatch, kToolSearch };
  enum class Status : std::uint8_t { kInProgress, kCompleted, kIncomplete };
  struct Item {
    Kind kind = Kind::kNone;
    std::size_t index = 0;
    std::string id;          // escaped, as all texts here
    std::string call_head;   // call_id and what follows it up to the arguments
    std::string name;        // of a function: for the done event
    std::string text;        // reasoning, content, arguments or input so far
    std::string logprobs;    // JSON, joined by commas
    std::string plain_text;  // kToolSearch: the arguments as they came
    PatchInput patch;        // kPatch
  };

  static std::string_view status_name(Status status);
  bool safe() const { return answer_->faithfulness == Faithfulness::kSafe; }
  // Whether a delta of this text makes an event.
  bool is_heard(std::string_view text) const { return !finished_ && !(safe() && text.empty()); }

  void open(Kind kind, std::string_view id_prefix);
  void open_text_item(Kind kind, std::string_view id_prefix);
  void close(Status status, std::string_view phase);
  void close_text_events();
  void close_call_events();
  void patch_delta(std::string_view text);
  // The escaped text joins the open item, and the delta event goes out.
  void delta(std::string_view event, std::string_view text, std::string_view logprobs);

  std::string item_json(Status status, std::string_view phase, bool with_content) const;
  std::string text_part_json(bool with_content) const;
  std::string response_json(Status status, const AnswerFinish* finish) const;

  // `fields`: between the type and the number.
  void emit(std::string_view event, std::string_view fields, std::string_view after_number = {});
  std::string place() const;  // "item_id":...,"output_index":...

  std::shared_ptr<const ResponsesAnswer> answer_;  // never changes: snapshots share it
  bool with_events_;
  bool started_ = false, finished_ = false;
  bool has_reasoned_ = false;
  std::size_t calls_ = 0, items_ = 0, sequence_ = 0;
  std::int64_t created_at_ = 0;
  Item open_;
  std::string output_;    // the finished items, joined by commas
  std::string response_;  // after finish
  std::vector<ApiEvent> events_;
};

}  // namespace artery::codec::api
