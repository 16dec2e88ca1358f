// Messages: the complete answer.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/api/answer_ids.h"
#include "codec/api/generators.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/api/messages_json.h"

namespace artery::codec::api {
namespace {

class MessagesResponse : public ResponseBuilder {
 public:
  explicit MessagesResponse(MessagesAnswer answer)
      : answer_(std::make_shared<const MessagesAnswer>(std::move(answer))) {}

  void start(const PromptUsage& usage, const std::optional<std::string>&) override {
    usage_ = usage;
    if (answer_->thinking) open(Kind::kThinking);
  }

  void reasoning(std::string_view text, std::span<const TokenLogprob>) override {
    has_reasoned_ = has_reasoned_ || !text.empty();
    open(Kind::kThinking);
    blocks_.back().text += text;
  }

  void content(std::string_view text, std::span<const TokenLogprob>) override {
    if (text.empty() && answer_->faithfulness == Faithfulness::kSafe) return;
    open(Kind::kText);
    blocks_.back().text += text;
  }

  void begin_call(std::string_view name, std::string_view id) override {
    const bool empty_thoughts = answer_->thinking && !has_reasoned_;
    Block& block = blocks_.emplace_back();
    block.kind = Kind::kCall;
    block.id =
        id.empty() ? make_call_id(calls_, empty_thoughts, *answer_->head.ids) : std::string(id);
    block.name = name;
    ++calls_;
  }

  void arguments(std::string_view text) override {
    if (!blocks_.empty() && blocks_.back().kind == Kind::kCall) blocks_.back().text += text;
  }

  void finish(const AnswerFinish& finish) override { finish_ = finish; }

  std::string json() const override {
    std::string out;
    append_message_head(out, answer_->head);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (i > 0) out += ',';
      append_block(out, blocks_[i], finish_ || i + 1 < blocks_.size());
    }
    out += "],";
    append_stop(out, finish_ ? &*finish_ : nullptr);
    out += R"(,"usage":)";
    append_messages_usage(
        out,
        finish_ ? finish_->usage.prompt : usage_,
        finish_ ? finish_->usage.completion_tokens : 0
    );
    out += '}';
    return out;
  }

  std::unique_ptr<ResponseBuilder> clone() const override {
    return std::make_unique<MessagesResponse>(*this);
  }

 private:
  enum class Kind : std::uint8_t { kThinking, kText, kCall };
  struct Block {
    Kind kind = Kind::kText;
    std::string text;  // or arguments
    std::string id, name;
  };

  void open(Kind kind) {
    if (blocks_.empty() || blocks_.back().kind != kind) blocks_.emplace_back().kind = kind;
  }

  void append_block(std::string& out, const Block& block, bool is_closed) const {
    switch (block.kind) {
      case Kind::kThinking:
        out += R"({"type":"thinking","thinking":)";
        put_json_string(out, block.text);
        out += R"(,"signature":)";
        put_json_string(out, is_closed ? answer_->signature.value_or(answer_->head.id) : "");
        break;
      case Kind::kText:
        out += R"({"type":"text","text":)";
        put_json_string(out, block.text);
        break;
      case Kind::kCall:
        out += R"({"type":"tool_use","id":)";
        put_json_string(out, block.id);
        out += R"(,"name":)";
        put_json_string(out, block.name);
        out += R"(,"input":)";
        append_input(out, block.text, is_closed);
        break;
    }
    out += '}';
  }

  // Arguments that are no JSON, such as those of a call cut off, are an empty object.
  static void append_input(std::string& out, std::string_view arguments, bool is_closed) {
    const auto tree = JsonTree::parse(arguments);
    if (is_closed && tree) {
      append_json(out, tree->root());
    } else {
      out += "{}";
    }
  }

  std::shared_ptr<const MessagesAnswer> answer_;
  PromptUsage usage_;
  std::vector<Block> blocks_;
  std::size_t calls_ = 0;
  bool has_reasoned_ = false;
  std::optional<AnswerFinish> finish_;
};

}  // namespace

std::unique_ptr<ResponseBuilder> messages_response(MessagesAnswer answer) {
  return std::make_unique<MessagesResponse>(std::move(answer));
}

}  // namespace artery::codec::api
