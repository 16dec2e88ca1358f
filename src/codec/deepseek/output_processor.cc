#include "codec/deepseek/output_processor.h"

#include <utility>

#include "codec/deepseek/output_grammar.h"
#include "codec/deepseek/output_machine.h"
#include "codec/deepseek/token_runs.h"
#include "codec/unicode.h"

namespace artery::codec::deepseek {
namespace {

// How many bytes at the end are the beginning of a character.
std::size_t cut_bytes(std::string_view text) {
  if (text.empty() || static_cast<unsigned char>(text.back()) < 0x80) return 0;
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    if ((static_cast<unsigned char>(text[text.size() - back]) & 0xC0) == 0x80) continue;
    const Utf8Char last = decode_utf8(text, text.size() - back);
    return last.state == Utf8State::kCut ? back : 0;
  }
  return 0;
}

}  // namespace

struct OutputProcessor::State {
  State(const ProcessorOptions& options, const Tokenizer* with)
      : machine(
            std::make_shared<const OutputGrammar>(
                options.parsing, options.specials, options.faithfulness
            ),
            with != nullptr && options.parsing.stage.has_value()
        ),
        runs(options.faithfulness == api::Faithfulness::kSafe),
        tokenizer(with),
        counts_reasoning(with != nullptr && options.parsing.stage.has_value()) {}

  Result<> check() const {
    if (closed) return fail(Code::kInvalidArgument, "stream processor is closed");
    if (finished) return fail(Code::kInvalidArgument, "stream processor has finished");
    return {};
  }

  void start(api::OutputSink& sink) {
    if (std::exchange(started, true)) return;
    sink.start(usage.prompt, fingerprint);
  }

  void feed(std::vector<TokenRuns::Run>& all, api::OutputSink& sink) {
    for (TokenRuns::Run& run : all) {
      start(sink);
      usage.completion_tokens += run.tokens;
      if (run.text.empty()) continue;
      const ByteSource source = run.is_added ? ByteSource::kAdded : ByteSource::kTokens;
      machine.piece(run.text, source, std::move(run.logprobs), sink);
      if (end_if_stopped(sink)) return;
    }
  }

  bool end_if_stopped(api::OutputSink& sink) {
    if (!machine.stopped()) return false;
    give_finish(api::FinishReason::kStopSequence, *machine.stopped(), sink);
    return true;
  }

  void give_finish(api::FinishReason reason, std::string_view stop, api::OutputSink& sink) {
    finished = true;
    if (counts_reasoning) {
      EncodeOptions options;
      options.parse_special = true;
      usage.reasoning_tokens =
          static_cast<std::int64_t>(tokenizer->encode(machine.reasoning(), options).size());
    }
    sink.finish({reason, std::string(stop), usage});
  }

  void finish(std::optional<BackendFinish> backend, api::OutputSink& sink) {
    start(sink);
    std::vector<TokenRuns::Run> rest;
    runs.finish(rest);
    feed(rest, sink);
    if (!finished && !cut.empty()) machine.piece(cut, ByteSource::kText, {}, sink);
    if (finished || end_if_stopped(sink)) return;
    machine.end(sink);
    give_finish(reason_of(backend), {}, sink);
  }

  api::FinishReason reason_of(std::optional<BackendFinish> backend) const {
    if (!backend) return api::FinishReason::kEndOfStream;
    if (*backend == BackendFinish::kLength) return api::FinishReason::kLength;
    if (*backend == BackendFinish::kContentFilter) return api::FinishReason::kContentFilter;
    return machine.calls() > 0 ? api::FinishReason::kToolCalls : api::FinishReason::kStop;
  }

  OutputMachine machine;
  TokenRuns runs;
  const Tokenizer* tokenizer;
  bool counts_reasoning;
  bool started = false, finished = false, closed = false;
  api::AnswerUsage usage;
  std::optional<std::string> fingerprint;
  std::string cut;  // the beginning of a character that a text chunk ended with
  std::vector<TokenRuns::Run> scratch;
};

OutputProcessor::OutputProcessor(ProcessorOptions options, const Tokenizer* tokenizer)
    : state_(std::make_unique<State>(options, tokenizer)) {}
OutputProcessor::OutputProcessor(const OutputProcessor& other)
    : state_(std::make_unique<State>(*other.state_)) {}
OutputProcessor& OutputProcessor::operator=(const OutputProcessor& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}
OutputProcessor::OutputProcessor(OutputProcessor&&) noexcept = default;
OutputProcessor& OutputProcessor::operator=(OutputProcessor&&) noexcept = default;
OutputProcessor::~OutputProcessor() = default;

Result<> OutputProcessor::ready(
    const std::optional<api::PromptUsage>& usage,
    const std::optional<std::string>& fingerprint,
    api::OutputSink& sink
) {
  TRY(state_->check());
  if (state_->started) return {};
  if (usage) state_->usage.prompt = *usage;
  state_->fingerprint = fingerprint;
  state_->start(sink);
  return {};
}

Result<> OutputProcessor::text(
    std::string_view text, std::int64_t token_count, api::OutputSink& sink
) {
  State& state = *state_;
  TRY(state.check());
  state.start(sink);
  state.usage.completion_tokens += token_count;
  std::string joined;
  if (!state.cut.empty()) {
    joined = std::exchange(state.cut, {});
    joined += text;
    text = joined;
  }
  const std::size_t cut = cut_bytes(text);
  if (cut > 0) {
    state.cut = text.substr(text.size() - cut);
    text.remove_suffix(cut);
    if (text.empty()) return {};
  }
  state.machine.piece(text, ByteSource::kText, {}, sink);
  state.end_if_stopped(sink);
  return {};
}

Result<> OutputProcessor::tokens(
    std::span<const TokenId> ids, std::span<const IdLogprob> logprobs, api::OutputSink& sink
) {
  State& state = *state_;
  TRY(state.check());
  if (state.tokenizer == nullptr) {
    state.closed = true;
    return fail(Code::kInvalidArgument, "token chunk received without a tokenizer");
  }
  if (logprobs.data() != nullptr && logprobs.size() != ids.size()) {
    state.closed = true;
    return fail(
        Code::kInvalidArgument,
        "invalid log probabilities: {} log probabilities for {} token IDs",
        logprobs.size(),
        ids.size()
    );
  }
  state.scratch.clear();
  state.runs.push(ids, logprobs, *state.tokenizer, state.scratch);
  state.feed(state.scratch, sink);
  return {};
}

Result<> OutputProcessor::finish(BackendFinish reason, api::OutputSink& sink) {
  TRY(state_->check());
  state_->finish(reason, sink);
  return {};
}

Result<> OutputProcessor::end(api::OutputSink& sink) {
  if (state_->closed) return state_->check();
  if (!state_->finished) state_->finish(std::nullopt, sink);
  return {};
}

bool OutputProcessor::finished() const { return state_->finished; }

}  // namespace artery::codec::deepseek
