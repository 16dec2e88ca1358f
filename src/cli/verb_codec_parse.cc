// `artery codec parse`: what a model wrote to the events and the response of an API. JSON Lines in
// and out, or plain text to readable deltas.

#include <iostream>
#include <iterator>
#include <memory>

#include "cli/hf_tokenizer_loader.h"
#include "cli/json_lines.h"
#include "cli/options.h"
#include "cli/output_case.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"

namespace artery::cli {
namespace {

using codec::api::Faithfulness;
using codec::api::put_json_string;

struct ParseSetup {
  std::shared_ptr<const codec::Tokenizer> tokenizer;
  Faithfulness faithfulness = Faithfulness::kRecipe;
};

std::string answer_line(const std::string& text, const ParseSetup& setup) {
  const auto tree = codec::api::JsonTree::parse(text);
  std::string out = R"({"id":)";
  std::string error;
  if (!tree) {
    out += "null";
    error = "not a JSON line: " + tree.error();
  } else {
    const codec::api::Json* const id = tree->root().find("id");
    out += id == nullptr ? "null" : codec::api::to_json(*id);
    const auto output = read_output_case(tree->root());
    if (output) {
      const OutputRun run = run_output_case(*output, setup.tokenizer.get(), setup.faithfulness);
      return out + ',' + run_json(*output, run) + '}';
    }
    error = output.error().field + ' ' + output.error().message;
  }
  out += R"(,"error":{"message":)";
  put_json_string(out, error);
  return out + R"(,"type":"invalid_request_error"}})";
}

// Each delta a line, as it left the parser.
class ReadableSink : public codec::api::OutputSink {
 public:
  void start(const codec::api::PromptUsage&, const std::optional<std::string>&) override {}
  void reasoning(std::string_view text, std::span<const codec::api::TokenLogprob>) override {
    show("reasoning", text);
  }
  void content(std::string_view text, std::span<const codec::api::TokenLogprob>) override {
    show("content", text);
  }
  void begin_call(std::string_view name, std::string_view) override { show("call", name); }
  void arguments(std::string_view text) override { show("arguments", text); }
  void finish(const codec::api::AnswerFinish& finish) override {
    using codec::api::FinishReason;
    std::string_view reason = "stop";
    if (finish.reason == FinishReason::kToolCalls) reason = "tool_calls";
    if (finish.reason == FinishReason::kStopSequence) reason = "stop_sequence";
    std::cout << "finish     " << reason;
    if (!finish.stop_sequence.empty()) {
      std::string stop;
      put_json_string(stop, finish.stop_sequence);
      std::cout << ' ' << stop;
    }
    std::cout << '\n';
  }

 private:
  static void show(std::string_view what, std::string_view text) {
    std::string line(what);
    line.resize(11, ' ');
    put_json_string(line, text);
    std::cout << line << '\n';
  }
};

// The options of a text as a line of the record would have them.
Result<OutputCase> text_case(const Options& options, const std::string& text) {
  OutputCase output;
  const auto api = codec::api::api_of(options.text("api"));
  if (api) output.api = *api;
  output.thinking = options.on("thinking");
  output.parsing.json_output = options.on("json-output");
  output.parsing.starts_in_calls = options.on("in-calls");
  if (!options.text("stop").empty()) output.parsing.stops = {options.text("stop")};
  if (output.thinking) output.parsing.stage = codec::api::InitialStage::kReasoningStart;
  const auto step = static_cast<std::size_t>(options.integer("chunk"));
  for (std::size_t at = 0; at < text.size();) {
    OutputChunk& chunk = output.chunks.emplace_back();
    chunk.text = text.substr(at, step == 0 ? std::string::npos : step);
    at += chunk.text.size();
  }
  output.chunks.emplace_back().kind = OutputChunk::Kind::kFinish;
  output.head = {"id-0", "model", codec::api::system_ids()};
  return output;
}

Result<> parse_text(std::istream& in, const Options& options, Faithfulness faithfulness) {
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const OutputCase output = TRY(text_case(options, text));
  if (options.text("api") == "none") {
    ReadableSink sink;
    codec::deepseek::OutputProcessor processor(
        {output.parsing, output.specials, faithfulness}, nullptr
    );
    for (const OutputChunk& chunk : output.chunks) {
      if (processor.finished()) break;
      TRY(push_chunk(processor, chunk, sink));
    }
    return processor.end(sink);
  }
  for (const OutputRun::Event& event : run_output_case(output, nullptr, faithfulness).events) {
    if (!event.event.name.empty()) std::cout << "event: " << event.event.name << '\n';
    std::cout << "data: " << event.event.data << "\n\n";
  }
  return {};
}

Result<int> run_codec_parse(const Options& options) {
  ParseSetup setup;
  if (options.text("mode") == "safe") setup.faithfulness = Faithfulness::kSafe;
  if (!options.text("tokenizer").empty()) {
    setup.tokenizer = TRY(load_any_tokenizer(options.text("tokenizer")));
  }
  TRY(with_input(options.text("input"), [&](std::istream& in) -> Result<> {
    if (options.on("text")) return parse_text(in, options, setup.faithfulness);
    for (std::string line; std::getline(in, line);) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      std::cout << answer_line(line, setup) << '\n';
    }
    std::cout.flush();
    if (!std::cout) return fail(Code::kIo, "standard output cannot be written");
    return {};
  }));
  return kExitDone;
}

Flag text_only(Flag flag) {
  flag.in_config = false;
  return flag;
}

}  // namespace

Verb codec_parse_verb() {
  return {
      "codec parse",
      "DeepSeek model output to the events of an API: JSON Lines, or text with --text",
      "artery codec parse --tokenizer tokenizer.json outputs.jsonl\n"
      "artery codec parse --text --thinking --chunk 4 < output.txt\n"
      "artery codec parse --text --api messages --mode safe < output.txt",
      {
          {.name = "input",
           .help = "file; empty or -: standard input",
           .value_name = "FILE",
           .positional = true,
           .in_config = false},
          {.name = "mode",
           .kind = FlagKind::kChoice,
           .fallback = "recipe",
           .help = "recipe: as the official package; safe: as the server, with the mends of "
                   "docs/codec.md",
           .in_config = false,
           .choices = "recipe|safe"},
          {.name = "tokenizer",
           .help = "tokenizer.json or a model file, for lines with token ids",
           .value_name = "FILE",
           .in_config = false},
          text_only(
              {.name = "text",
               .kind = FlagKind::kSwitch,
               .fallback = "false",
               .help = "the input is what a model wrote, not JSON Lines"}
          ),
          text_only(
              {.name = "api",
               .kind = FlagKind::kChoice,
               .fallback = "none",
               .help = "with --text: the API whose stream to show; none: plain deltas",
               .choices = "none|chat|messages|responses"}
          ),
          text_only(
              {.name = "thinking",
               .kind = FlagKind::kSwitch,
               .fallback = "false",
               .help = "with --text: it begins with reasoning"}
          ),
          text_only(
              {.name = "in-calls",
               .kind = FlagKind::kSwitch,
               .fallback = "false",
               .help = "with --text: it begins inside the block of calls"}
          ),
          text_only(
              {.name = "json-output",
               .kind = FlagKind::kSwitch,
               .fallback = "false",
               .help = "with --text: JSON was asked for"}
          ),
          text_only({.name = "stop", .help = "with --text: a stop sequence", .value_name = "TEXT"}),
          text_only(
              {.name = "chunk",
               .kind = FlagKind::kInteger,
               .fallback = "0",
               .help = "with --text: bytes of one piece; 0: all at once",
               .min = 0,
               .max = 1e9}
          ),
      },
      run_codec_parse,
  };
}

}  // namespace artery::cli
