// Messages: the events of a streamed answer.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/api/answer_ids.h"
#include "codec/api/generators.h"
#include "codec/api/json_out.h"
#include "codec/api/messages_json.h"

namespace artery::codec::api {
namespace {

class MessagesEvents : public EventGenerator {
 public:
  explicit MessagesEvents(MessagesAnswer answer)
      : answer_(std::make_shared<const MessagesAnswer>(std::move(answer))) {}

  void start(const PromptUsage& usage, const std::optional<std::string>&) override {
    std::string& data = add("message_start", R"({"type":"message_start","message":)");
    append_message_head(data, answer_->head);
    data += "],";
    append_stop(data, nullptr);
    data += R"(,"usage":)";
    append_messages_usage(data, usage, 0);
    data += "}}";
    if (answer_->thinking) open_thinking();
  }

  void reasoning(std::string_view text, std::span<const TokenLogprob>) override {
    if (is_mute(text)) return;
    has_reasoned_ = has_reasoned_ || !text.empty();
    if (block_ != Block::kThinking) open_thinking();
    delta(R"("thinking_delta","thinking":")", text);
  }

  void content(std::string_view text, std::span<const TokenLogprob>) override {
    if (is_mute(text)) return;
    if (block_ != Block::kText) open(Block::kText, R"({"type":"text","text":""})");
    delta(R"("text_delta","text":")", text);
  }

  void begin_call(std::string_view name, std::string_view id) override {
    if (finished_) return;
    std::string block = R"({"type":"tool_use","id":)";
    if (id.empty()) {
      const bool empty_thoughts = answer_->thinking && !has_reasoned_;
      put_json_string(block, make_call_id(calls_, empty_thoughts, *answer_->head.ids));
    } else {
      put_json_string(block, id);
    }
    block += R"(,"name":)";
    put_json_string(block, name);
    block += R"(,"input":{}})";
    open(Block::kCall, block);
    ++calls_;
  }

  void arguments(std::string_view text) override {
    if (is_mute(text) || block_ != Block::kCall) return;
    delta(R"("input_json_delta","partial_json":")", text);
  }

  void finish(const AnswerFinish& finish) override {
    if (finished_) return;
    close();
    finished_ = true;
    std::string& data = add("message_delta", R"({"type":"message_delta","delta":{)");
    append_stop(data, &finish);
    data += R"(},"usage":)";
    append_messages_usage(data, finish.usage.prompt, finish.usage.completion_tokens);
    data += '}';
    add("message_stop", R"({"type":"message_stop"})");
  }

  std::vector<ApiEvent> take() override { return std::exchange(events_, {}); }
  std::unique_ptr<EventGenerator> clone() const override {
    return std::make_unique<MessagesEvents>(*this);
  }

 private:
  enum class Block : std::uint8_t { kNone, kThinking, kText, kCall };

  // safe: empty deltas say nothing.
  bool is_mute(std::string_view text) const {
    return finished_ || (text.empty() && answer_->faithfulness == Faithfulness::kSafe);
  }

  std::string& add(std::string_view name, std::string_view data) {
    ApiEvent& event = events_.emplace_back();
    event.name = name;
    event.data = data;
    return event.data;
  }

  void open_thinking() {
    open(Block::kThinking, R"({"type":"thinking","thinking":"","signature":""})");
  }

  void open(Block block, std::string_view json) {
    close();
    block_ = block;
    index_ = std::to_string(blocks_);
    delta_head_ = R"({"type":"content_block_delta","index":)" + index_ + R"(,"delta":{"type":)";
    std::string& data = add("content_block_start", R"({"type":"content_block_start","index":)");
    data += index_;
    data += R"(,"content_block":)";
    data += json;
    data += '}';
    if (blocks_++ == 0) add("ping", R"({"type":"ping"})");
  }

  void close() {
    if (block_ == Block::kNone) return;
    if (block_ == Block::kThinking) {
      delta(R"("signature_delta","signature":")", answer_->signature.value_or(answer_->head.id));
    }
    std::string& data = add("content_block_stop", R"({"type":"content_block_stop","index":)");
    data += index_;
    data += '}';
    block_ = Block::kNone;
  }

  void delta(std::string_view field, std::string_view text) {
    ApiEvent& event = events_.emplace_back();
    event.name = "content_block_delta";
    event.data.reserve(delta_head_.size() + field.size() + text.size() + text.size() / 8 + 16);
    event.data += delta_head_;
    event.data += field;
    put_json_inside(event.data, text);
    event.data += R"("}})";
  }

  std::shared_ptr<const MessagesAnswer> answer_;  // never changes: snapshots share it
  std::vector<ApiEvent> events_;
  Block block_ = Block::kNone;
  std::size_t blocks_ = 0, calls_ = 0;
  std::string index_, delta_head_;
  bool has_reasoned_ = false, finished_ = false;
};

}  // namespace

std::unique_ptr<EventGenerator> messages_events(MessagesAnswer answer) {
  return std::make_unique<MessagesEvents>(std::move(answer));
}

}  // namespace artery::codec::api
