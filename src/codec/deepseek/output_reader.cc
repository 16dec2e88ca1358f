#include "codec/deepseek/output_reader.h"

#include <utility>

#include "codec/deepseek/output_grammar.h"
#include "codec/deepseek/output_machine.h"

namespace artery::codec::deepseek {
namespace {

// Deltas as events. Log probabilities, counts and the finish are the caller's.
class EventSink final : public api::OutputSink {
 public:
  explicit EventSink(OutputEvents& out) : out_(out) {}
  void start(const api::PromptUsage&, const std::optional<std::string>&) override {}
  void reasoning(std::string_view text, std::span<const api::TokenLogprob>) override {
    out_.reasoning(text);
  }
  void content(std::string_view text, std::span<const api::TokenLogprob>) override {
    out_.content(text);
  }
  void begin_call(std::string_view name, std::string_view id) override {
    out_.end_call(true);  // a whole one has its arguments already
    out_.begin_call(name, id);
  }
  void arguments(std::string_view text) override { out_.arguments(text); }
  void finish(const api::AnswerFinish&) override {}

 private:
  OutputEvents& out_;
};

class Reader final : public OutputReader {
 public:
  explicit Reader(const api::ParsingOptions& parsing)
      : machine_(
            std::make_shared<const OutputGrammar>(
                parsing, SpecialTexts(), api::Faithfulness::kSafe
            ),
            false
        ) {}

  std::unique_ptr<OutputReader> clone() const override { return std::make_unique<Reader>(*this); }

  void push_text(std::string_view text, OutputEvents& out) override {
    if (!text.empty()) piece(text, ByteSource::kTokens, out);
  }
  void push_added(std::string_view token, OutputEvents& out) override {
    piece(token, ByteSource::kAdded, out);
  }
  void finish(OutputEvents& out) override {
    EventSink sink(out);
    machine_.end(sink);
    out.end_call(true);
  }

 private:
  void piece(std::string_view text, ByteSource source, OutputEvents& out) {
    if (machine_.stopped()) return;
    EventSink sink(out);
    machine_.piece(text, source, {}, sink);
  }

  OutputMachine machine_;
};

}  // namespace

std::unique_ptr<OutputReader> make_output_reader(const api::ParsingOptions& parsing) {
  return std::make_unique<Reader>(parsing);
}

}  // namespace artery::codec::deepseek
