// Model output in random chunks, of texts and of tokens, through the processor in both settings and
// the generators of the three APIs: no crash, every event and response is JSON, and in the safe
// setting what is said does not depend on the cuts.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/api/generators.h"
#include "codec/api/json_tree.h"
#include "codec/deepseek/output_processor.h"

namespace {

using namespace artery;
using namespace artery::codec;
using api::Faithfulness;

// A byte picks a piece; high bytes are bytes.
constexpr std::string_view kPieces[] = {
    "<｜DSML｜",
    "</｜DSML｜",
    "</think>",
    "<think>",
    "\n",
    "invoke name=\"",
    "parameter name=",
    " calls>",
    "tool_calls>",
    " invoke name=\"f\">",
    " parameter name=\"a\" string=\"true\">",
    " parameter name='b' string=\"false\">",
    "string=\"",
    "true\">",
    "false\">",
    "\"",
    "'",
    ">",
    "<",
    " ",
    "{",
    "}",
    "[1, 2.5]",
    "null",
    "```json\n",
    "```\n",
    "\n```",
    "STOP",
    "ST",
    "\\",
    "\x01",
    "中",
    "😀",
    "\xF0\x9F",
    "\x98\x80",
    "<｜",
    "｜DSML｜",
    "</",
    "calls",
    "a",
    "tru",
    "fals",
    " function>",
};
constexpr std::size_t kPieceCount = std::size(kPieces);

// The pieces as tokens; the first four and the marker alone are of the added vocabulary.
class PieceTokenizer : public Tokenizer {
 public:
  PieceTokenizer() {
    for (const std::string_view piece : kPieces) vocab_.tokens.emplace_back(piece);
    vocab_.kinds.assign(kPieceCount, TokenKind::kNormal);
    for (std::size_t i = 0; i < kPieceCount; ++i) {
      const std::string_view piece = kPieces[i];
      if (piece == "</think>" || piece == "<think>" || piece == "｜DSML｜") {
        vocab_.kinds[i] = TokenKind::kControl;
      }
    }
  }
  const VocabData& vocab() const override { return vocab_; }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions&) const override {
    return std::vector<TokenId>(text.size());
  }
  std::string_view piece(TokenId id) const override {
    return id < 0 || static_cast<std::size_t>(id) >= kPieceCount
               ? std::string_view()
               : kPieces[static_cast<std::size_t>(id)];
  }
  std::string decode(std::span<const TokenId>, bool) const override { return {}; }

 private:
  VocabData vocab_;
};

struct Step {
  bool is_token = false;
  std::string text;
  TokenId id = 0;
};

struct Said : api::OutputSink {
  void start(const api::PromptUsage&, const std::optional<std::string>&) override {}
  void reasoning(std::string_view text, std::span<const api::TokenLogprob> list) override {
    thoughts += text;
    note(list);
  }
  void content(std::string_view text, std::span<const api::TokenLogprob> list) override {
    answer += text;
    note(list);
  }
  void begin_call(std::string_view name, std::string_view) override {
    calls += '\0';
    calls += name;
    calls += '\0';
  }
  void arguments(std::string_view text) override { calls += text; }
  void finish(const api::AnswerFinish& finish) override {
    end = std::to_string(static_cast<int>(finish.reason)) + finish.stop_sequence;
  }
  void note(std::span<const api::TokenLogprob> list) {
    for (const api::TokenLogprob& entry : list) logprobs += entry.bytes + '|';
  }
  bool operator==(const Said& other) const {
    return thoughts == other.thoughts && answer == other.answer && calls == other.calls &&
           end == other.end && logprobs == other.logprobs;
  }
  std::string thoughts, answer, calls, end, logprobs;
};

// Neighbours of one kind are joined while the random bits say so.
void push_all(
    deepseek::OutputProcessor& processor,
    const std::vector<Step>& steps,
    std::uint64_t cuts,
    api::OutputSink& sink
) {
  std::uint64_t bits = cuts * 0x9E3779B97F4A7C15ULL + 1;
  const auto joins = [&] {
    bits = bits * 6364136223846793005ULL + 1442695040888963407ULL;
    return (bits >> 40) % 3 != 0;
  };
  for (std::size_t at = 0; at < steps.size() && !processor.finished();) {
    const bool is_token = steps[at].is_token;
    std::string text;
    std::vector<TokenId> ids;
    do {
      text += steps[at].text;
      ids.push_back(steps[at].id);
      ++at;
    } while (at < steps.size() && steps[at].is_token == is_token && joins());
    if (is_token) {
      const std::vector<deepseek::IdLogprob> logprobs(ids.size());
      if (!processor.tokens(ids, logprobs, sink)) std::abort();
    } else if (!processor.text(text, 1, sink)) {
      std::abort();
    }
  }
}

void check_json(std::string_view text) {
  if (!api::JsonTree::parse(text)) std::abort();
}

void run_api(
    api::EventGenerator& events,
    api::ResponseBuilder& response,
    const deepseek::OutputProcessor& processor,
    const std::vector<Step>& steps,
    std::uint64_t cuts
) {
  deepseek::OutputProcessor first = processor, second = processor;
  push_all(first, steps, cuts, events);
  (void)first.end(events);
  for (const api::ApiEvent& event : events.take()) check_json(event.data);
  push_all(second, steps, cuts, response);
  (void)second.end(response);
  check_json(response.json());
}

template <typename Answer>
Answer answer_of(std::uint8_t options, Faithfulness faithfulness) {
  Answer answer;
  answer.head.id = "id\"";
  answer.thinking = (options & 1) != 0;
  answer.faithfulness = faithfulness;
  return answer;
}

std::vector<Step> read_steps(const std::uint8_t* data, std::size_t size) {
  std::vector<Step> steps;
  bool is_token = false;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t value = data[i];
    Step& step = steps.emplace_back();
    if (value == 255) is_token = !is_token;
    step.is_token = is_token;
    if (value < 3 * kPieceCount) {
      step.id = static_cast<TokenId>(value % kPieceCount);
      step.text = kPieces[value % kPieceCount];
    } else {
      step.id = -1;
      step.text = std::string(1, static_cast<char>(value));
    }
  }
  return steps;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3 || size > 2000) return 0;
  static const PieceTokenizer kTokenizer;
  const std::uint8_t flags = data[0];
  const std::vector<Step> steps = read_steps(data + 3, size - 3);
  const std::uint64_t cuts = data[2];
  deepseek::ProcessorOptions options;
  options.parsing.tool_calls = (flags & 1) == 0;
  options.parsing.starts_in_calls = (flags & 2) != 0;
  options.parsing.json_output = (flags & 4) != 0;
  if ((flags & 8) != 0) options.parsing.stops = {"STOP", "ST ", "\n"};
  if ((flags & 48) != 0) {
    options.parsing.stage = static_cast<api::InitialStage>((flags >> 4 & 3) - 1);
  }
  for (const Faithfulness faithfulness : {Faithfulness::kRecipe, Faithfulness::kSafe}) {
    options.faithfulness = faithfulness;
    const deepseek::OutputProcessor processor(options, &kTokenizer);
    run_api(
        *api::chat_events(answer_of<api::ChatAnswer>(data[1], faithfulness)),
        *api::chat_response(answer_of<api::ChatAnswer>(data[1], faithfulness)),
        processor,
        steps,
        cuts
    );
    run_api(
        *api::messages_events(answer_of<api::MessagesAnswer>(data[1], faithfulness)),
        *api::messages_response(answer_of<api::MessagesAnswer>(data[1], faithfulness)),
        processor,
        steps,
        cuts
    );
    auto responses = answer_of<api::ResponsesAnswer>(data[1], faithfulness);
    responses.has_apply_patch = (data[1] & 2) != 0;
    run_api(
        *api::responses_events(responses),
        *api::responses_response(responses),
        processor,
        steps,
        cuts
    );
  }
  Said whole, cut;
  deepseek::OutputProcessor one(options, &kTokenizer), other(options, &kTokenizer);
  push_all(one, steps, cuts, whole);
  push_all(other, steps, cuts + 1, cut);
  (void)one.end(whole);
  (void)other.end(cut);
  if (!(whole == cut)) std::abort();
  return 0;
}
