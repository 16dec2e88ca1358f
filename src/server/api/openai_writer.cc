#include <utility>

#include "server/api/answer_writer.h"

namespace artery::server::api {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

class OpenAiWriter final : public AnswerWriter {
 public:
  OpenAiWriter(AnswerHead head, OpenAiWish wish)
      : wish_(wish),
        format_(
            wish.is_chat ? make_chat_format(std::move(head), wish.show_logprobs)
                         : make_completion_format(std::move(head), wish.show_logprobs)
        ) {}

  bool shows_progress() const override { return wish_.continuous_usage; }

  std::string part(const ChoicePart& part, const Progress* now, bool is_last) override {
    std::string out;
    ChunkExtras more;
    if (wish_.continuous_usage) {
      more.usage = now->usage;
    } else {
      more.usage_null = wish_.include_usage;
    }
    const auto index = static_cast<std::size_t>(part.index);
    if (opened_.size() <= index) opened_.resize(index + 1);
    if (!opened_[index]) {
      opened_[index] = true;
      const std::string opening = format_->opening_chunk(part.index, more);
      if (!opening.empty()) append_event(out, {}, opening);
    }
    if (is_last && wish_.timings && !wish_.include_usage) more.timings = now->timings;
    append_event(out, {}, format_->chunk(part, more));
    return out;
  }

  std::string end(const Progress& now) override {
    std::string out;
    if (wish_.include_usage) {
      append_event(
          out, {}, format_->usage_chunk(now.usage, wish_.timings ? &now.timings : nullptr)
      );
    }
    out += kDone;
    return out;
  }

  std::string failure(const ApiError& error) override {
    std::string out;
    append_event(out, {}, error_json(error));
    out += kDone;
    return out;
  }

  std::string heartbeat() const override { return ": keep-alive\n\n"; }

  std::string whole(const std::vector<ChoicePart>& choices, const Progress& now) override {
    return format_->answer(choices, now.usage, wish_.timings ? &now.timings : nullptr);
  }

  ErrorShape error_shape() const override { return ErrorShape::kOpenAi; }

 private:
  const OpenAiWish wish_;
  const std::unique_ptr<AnswerFormat> format_;
  std::vector<bool> opened_;  // by choice
};

}  // namespace

std::unique_ptr<AnswerWriter> make_openai_writer(AnswerHead head, OpenAiWish wish) {
  return std::make_unique<OpenAiWriter>(std::move(head), wish);
}

void append_event(std::string& out, std::string_view name, std::string_view json) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  out += "data: ";
  out += json;
  out += "\n\n";
}

}  // namespace artery::server::api
