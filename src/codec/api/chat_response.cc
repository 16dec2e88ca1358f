// Chat Completions: the complete answer.

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

class ChatResponse : public ResponseBuilder {
 public:
  explicit ChatResponse(ChatAnswer answer)
      : answer_(std::make_shared<const ChatAnswer>(std::move(answer))),
        created_(answer_->head.ids->unix_time_s()) {}

  void start(const PromptUsage&, const std::optional<std::string>& fingerprint) override {
    started_ = true;
    fingerprint_ = fingerprint;
    has_reasoning_ = answer_->thinking && !answer_->continues_content;
  }

  void reasoning(std::string_view text, std::span<const TokenLogprob> logprobs) override {
    has_reasoning_ = true;
    reasoning_ += text;
    note(reasoning_logprobs_, logprobs);
  }

  void content(std::string_view text, std::span<const TokenLogprob> logprobs) override {
    content_ += text;
    note(content_logprobs_, logprobs);
  }

  void begin_call(std::string_view name, std::string_view id) override {
    const bool empty_thoughts = answer_->thinking && reasoning_.empty();
    calls_.push_back(
        {id.empty() ? make_call_id(calls_.size(), empty_thoughts, *answer_->head.ids)
                    : std::string(id),
         std::string(name),
         {}}
    );
  }

  void arguments(std::string_view text) override {
    if (!calls_.empty()) calls_.back().arguments += text;
  }

  void finish(const AnswerFinish& finish) override { finish_ = finish; }

  std::string json() const override {
    std::string out = R"({"id":)";
    put_json_string(out, answer_->head.id);
    out += R"(,"object":"chat.completion","created":)";
    put_json_int(out, created_);
    out += R"(,"model":)";
    put_json_string(out, answer_->head.model);
    out += R"(,"choices":[)";
    if (started_) append_choice(out);
    out += ']';
    if (finish_) {
      out += R"(,"usage":)";
      append_chat_usage(out, finish_->usage, answer_->thinking);
    }
    out += R"(,"system_fingerprint":)";
    fingerprint_ ? put_json_string(out, *fingerprint_) : void(out += "null");
    out += '}';
    return out;
  }

  std::unique_ptr<ResponseBuilder> clone() const override {
    return std::make_unique<ChatResponse>(*this);
  }

 private:
  struct Call {
    std::string id, name, arguments;
  };

  void note(std::string& to, std::span<const TokenLogprob> logprobs) const {
    if (logprobs.empty()) return;
    if (!to.empty()) to += ',';
    append_logprobs(to, logprobs, answer_->faithfulness);
  }

  void append_choice(std::string& out) const {
    out += R"({"index":)";
    put_json_int(out, answer_->choice);
    out += R"(,"message":{"role":"assistant","content":)";
    put_json_string(out, content_);
    if (has_reasoning_) {
      out += R"(,"reasoning_content":)";
      put_json_string(out, reasoning_);
    }
    if (!calls_.empty()) append_calls(out);
    out += R"(},"logprobs":)";
    append_choice_logprobs(out);
    out += R"(,"finish_reason":)";
    if (finish_) {
      put_json_string(out, chat_finish_reason(finish_->reason));
    } else {
      out += "null";
    }
    out += '}';
  }

  void append_calls(std::string& out) const {
    out += R"(,"tool_calls":[)";
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      out += i > 0 ? R"(,{"index":)" : R"({"index":)";
      put_json_uint(out, i);
      out += R"(,"id":)";
      put_json_string(out, calls_[i].id);
      out += R"(,"type":"function","function":{"name":)";
      put_json_string(out, calls_[i].name);
      out += R"(,"arguments":)";
      put_json_string(out, calls_[i].arguments);
      out += "}}";
    }
    out += ']';
  }

  void append_choice_logprobs(std::string& out) const {
    if (content_logprobs_.empty() && reasoning_logprobs_.empty()) {
      out += "null";
      return;
    }
    out += '{';
    if (!content_logprobs_.empty()) out += R"("content":[)" + content_logprobs_ + ']';
    if (!reasoning_logprobs_.empty()) {
      if (!content_logprobs_.empty()) out += ',';
      out += R"("reasoning_content":[)" + reasoning_logprobs_ + ']';
    }
    out += '}';
  }

  std::shared_ptr<const ChatAnswer> answer_;
  std::int64_t created_;
  bool started_ = false, has_reasoning_ = false;
  std::optional<std::string> fingerprint_;
  std::string content_, reasoning_, content_logprobs_, reasoning_logprobs_;
  std::vector<Call> calls_;
  std::optional<AnswerFinish> finish_;
};

}  // namespace

std::unique_ptr<ResponseBuilder> chat_response(ChatAnswer answer) {
  return std::make_unique<ChatResponse>(std::move(answer));
}

}  // namespace artery::codec::api
