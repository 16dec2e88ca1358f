// Chat Completions: the chunks of a streamed answer.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/api/answer_ids.h"
#include "codec/api/chat_json.h"
#include "codec/api/generators.h"
#include "codec/api/json_out.h"
#include "codec/api/logprob_json.h"

namespace artery::codec::api {
namespace {

class ChatEvents : public EventGenerator {
 public:
  explicit ChatEvents(ChatAnswer answer) : answer_(std::make_shared<ChatAnswer>(answer)) {}

  void start(const PromptUsage&, const std::optional<std::string>& fingerprint) override {
    Texts texts;
    std::string& head = texts.head;
    head = R"({"id":)";
    put_json_string(head, answer_->head.id);
    head += R"(,"object":"chat.completion.chunk","created":)";
    put_json_int(head, answer_->head.ids->unix_time_s());
    head += R"(,"model":)";
    put_json_string(head, answer_->head.model);
    head += R"(,"system_fingerprint":)";
    fingerprint ? put_json_string(head, *fingerprint) : void(head += "null");
    texts.delta = head + R"(,"choices":[{"index":)";
    put_json_int(texts.delta, answer_->choice);
    texts.delta += R"(,"delta":{)";
    texts.tail = answer_->include_usage ? R"(}],"usage":null})" : "}]}";
    texts.plain_tail = R"(},"logprobs":null,"finish_reason":null)" + texts.tail;
    texts_ = std::make_shared<const Texts>(std::move(texts));
    std::string& data = begin(R"("role":"assistant")", 32);
    if (!answer_->thinking) {
      data += R"(,"content":"")";
    } else {
      data += answer_->continues_content ? R"(,"content":"","reasoning_content":null)"
                                         : R"(,"content":null,"reasoning_content":"")";
    }
    data += texts_->plain_tail;
  }

  void reasoning(std::string_view text, std::span<const TokenLogprob> logprobs) override {
    if (is_mute(text)) return;
    has_reasoned_ = has_reasoned_ || !text.empty();
    std::string& data = begin(R"("content":null,"reasoning_content":")", text.size());
    put_json_inside(data, text);
    data += '"';
    end(data, "reasoning_content", logprobs);
  }

  void content(std::string_view text, std::span<const TokenLogprob> logprobs) override {
    if (is_mute(text)) return;
    std::string& data = begin(R"("content":")", text.size());
    put_json_inside(data, text);
    data += answer_->thinking ? R"(","reasoning_content":null)" : R"(")";
    end(data, "content", logprobs);
  }

  void begin_call(std::string_view name, std::string_view id) override {
    if (finished_) return;
    std::string& data = begin(R"("tool_calls":[{"index":)", name.size() + 96);
    put_json_uint(data, calls_);
    data += R"(,"id":)";
    if (id.empty()) {
      const bool empty_thoughts = answer_->thinking && !has_reasoned_;
      put_json_string(data, make_call_id(calls_, empty_thoughts, *answer_->head.ids));
    } else {
      put_json_string(data, id);
    }
    data += R"(,"type":"function","function":{"name":)";
    put_json_string(data, name);
    data += R"(,"arguments":""}}])";
    data += texts_->plain_tail;
    ++calls_;
  }

  void arguments(std::string_view text) override {
    if (is_mute(text) || calls_ == 0) return;
    std::string& data = begin(R"("tool_calls":[{"index":)", text.size() + 48);
    put_json_uint(data, calls_ - 1);
    data += R"(,"function":{"arguments":")";
    put_json_inside(data, text);
    data += R"("}}])";
    data += texts_->plain_tail;
  }

  void finish(const AnswerFinish& finish) override {
    if (std::exchange(finished_, true)) return;
    std::string& data = begin(R"("content":"")", 400);
    if (answer_->thinking) data += R"(,"reasoning_content":null)";
    data += R"(},"logprobs":null,"finish_reason":")";
    data += chat_finish_reason(finish.reason);
    data += '"';
    if (answer_->faithfulness == Faithfulness::kRecipe) {
      data += R"(}],"usage":)";
      append_chat_usage(data, finish.usage, answer_->thinking);
      data += '}';
      return;
    }
    // As OpenAI has it: usage only when asked for, in a chunk of its own behind the last.
    data += texts_->tail;
    if (!answer_->include_usage) return;
    std::string& last = events_.emplace_back().data;
    last = texts_->head + R"(,"choices":[],"usage":)";
    append_chat_usage(last, finish.usage, answer_->thinking);
    last += '}';
  }

  std::vector<ApiEvent> take() override { return std::exchange(events_, {}); }
  std::unique_ptr<EventGenerator> clone() const override {
    return std::make_unique<ChatEvents>(*this);
  }

 private:
  // The same in all chunks of the answer.
  struct Texts {
    std::string head;        // up to system_fingerprint
    std::string delta;       // up to the delta's fields
    std::string tail;        // from behind finish_reason on
    std::string plain_tail;  // from behind the delta's fields on, without anything to say
  };

  // safe: empty deltas say nothing.
  bool is_mute(std::string_view text) const {
    return finished_ || (text.empty() && answer_->faithfulness == Faithfulness::kSafe);
  }

  std::string& begin(std::string_view fields, std::size_t more) {
    std::string& data = events_.emplace_back().data;
    data.reserve(
        texts_->delta.size() + fields.size() + more + more / 8 + texts_->plain_tail.size() + 40
    );
    data += texts_->delta;
    data += fields;
    return data;
  }

  void end(std::string& data, std::string_view kind, std::span<const TokenLogprob> logprobs) {
    if (logprobs.empty()) {
      data += texts_->plain_tail;
      return;
    }
    data += R"(},"logprobs":{")";
    data += kind;
    data += R"(":[)";
    append_logprobs(data, logprobs, answer_->faithfulness);
    data += R"(]},"finish_reason":null)";
    data += texts_->tail;
  }

  std::shared_ptr<const ChatAnswer> answer_;  // never changes: snapshots share it
  std::shared_ptr<const Texts> texts_;
  std::vector<ApiEvent> events_;
  std::size_t calls_ = 0;
  bool has_reasoned_ = false, finished_ = false;
};

}  // namespace

std::unique_ptr<EventGenerator> chat_events(ChatAnswer answer) {
  return std::make_unique<ChatEvents>(std::move(answer));
}

}  // namespace artery::codec::api
