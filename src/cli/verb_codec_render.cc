// `artery codec render`: requests of the three APIs to DeepSeek's prompts, token ids and options.
// JSON Lines in and out, or one request to a prompt that people can read.

#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "cli/hf_tokenizer_loader.h"
#include "cli/json_lines.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/request_case.h"
#include "cli/verbs.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"

namespace artery::cli {
namespace {

using codec::api::Json;
using codec::api::JsonTree;
using codec::api::put_json_string;
using codec::deepseek::Rendered;

// A line may hold a request of the deepest kind inside.
constexpr int kLineDepth = 256;

struct RenderSetup {
  std::shared_ptr<const codec::Tokenizer> tokenizer;  // null: no ids
  RequestDefaults defaults;
};

std::string answer_line(const std::string& text, const RenderSetup& setup) {
  const auto tree = JsonTree::parse(text, kLineDepth);
  const Json* const id = tree ? tree->root().find("id") : nullptr;
  std::string out = "{\"id\":" + (id == nullptr ? "null" : codec::api::to_json(*id)) + ',';
  std::string wrong;
  if (!tree) {
    wrong = "not a JSON line: " + tree.error();
  } else if (!tree->root().is_object()) {
    wrong = "a line must be an object: {\"id\",\"api\",\"body\"}";
  } else {
    const auto request = read_request_case(tree->root(), setup.defaults);
    if (request) return out + run_request_case(*request, setup.tokenizer.get()) + '}';
    wrong = request.error().message;
  }
  out += R"("error":{"message":)";
  put_json_string(out, wrong);
  return out + R"(,"type":"invalid_request_error"}})";
}

Result<> render_lines(std::istream& in, const RenderSetup& setup) {
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::cout << answer_line(line, setup) << '\n';
  }
  std::cout.flush();
  if (!std::cout) return fail(Code::kIo, "standard output: cannot write");
  return {};
}

// The API of a request that nobody named: `input` is Responses', the rest is Chat's.
codec::api::Api guessed_api(const std::string& body) {
  const auto tree = JsonTree::parse(body);
  return tree && tree->root().find("input") != nullptr ? codec::api::Api::kResponses
                                                       : codec::api::Api::kChat;
}

std::string marked(const Rendered& prompt) {
  std::string out;
  std::size_t at = 0;
  for (const codec::ByteRange& range : prompt.specials) {
    out.append(prompt.text, at, range.begin - at);
    out += "⟦" + prompt.text.substr(range.begin, range.end - range.begin) + "⟧";
    at = range.end;
  }
  return out + prompt.text.substr(at);
}

// One token a line: its id and its bytes as a JSON string.
Result<std::string> token_lines(const Rendered& prompt, const codec::Tokenizer& tokenizer) {
  std::string out;
  for (const TokenId id : TRY(codec::deepseek::encode(prompt, tokenizer))) {
    out += fmt::format("{:>7} ", id);
    put_json_string(out, tokenizer.piece(id));
    out += '\n';
  }
  return out;
}

Result<std::string> shown(
    const Rendered& prompt, std::string_view form, const codec::Tokenizer* tokenizer
) {
  if (form == "marked") return marked(prompt) + '\n';
  if (form == "prompt") return prompt.text + '\n';
  if (tokenizer == nullptr)
    return fail_field("show", "tokens need --tokenizer FILE (a tokenizer.json)");
  return token_lines(prompt, *tokenizer);
}

Result<> render_text(std::istream& in, const Options& options, const RenderSetup& setup) {
  const std::string body(std::istreambuf_iterator<char>(in), {});
  const RequestCase request =
      request_of_body(setup.defaults.api.value_or(guessed_api(body)), body, setup.defaults);
  const auto converted = codec::api::convert(request.api, request.body, request.options);
  if (!converted) {
    const auto& error = converted.error();
    return fail(
        Code::kInvalidArgument, "the request is refused with {}: {}", error.status, error.message
    );
  }
  const Rendered prompt =
      codec::deepseek::render(converted->conversation, converted->version, request.specials);
  std::cout << TRY(shown(prompt, options.text("show"), setup.tokenizer.get()));
  std::cout.flush();
  return {};
}

Result<int> run_codec_render(const Options& options) {
  RenderSetup setup;
  setup.defaults.api = codec::api::api_of(options.text("api"));
  setup.defaults.encoding = model_version_of(options.text("encoding"));
  setup.defaults.serving = options.text("rules") == "serving";
  if (!options.text("tokenizer").empty())
    setup.tokenizer = TRY(load_any_tokenizer(options.text("tokenizer")));
  TRY(with_input(options.text("input"), [&](std::istream& in) {
    return options.on("text") ? render_text(in, options, setup) : render_lines(in, setup);
  }));
  return kExitDone;
}

}  // namespace

Verb codec_render_verb() {
  return {
      "codec render",
      "API requests to DeepSeek prompts: JSON Lines, or one request with --text",
      "artery codec render --tokenizer tokenizer.json requests.jsonl\n"
      "artery codec render --text --encoding deepseek-v4.1 request.json\n"
      "artery codec render --text --show marked --api messages --rules serving request.json",
      {
          {.name = "input",
           .help = "lines {\"id\",\"api\",\"options\",\"body\"}, or with --text one request as a "
                   "client sends it; empty or -: standard input",
           .value_name = "FILE",
           .positional = true,
           .in_config = false},
          {.name = "encoding",
           .kind = FlagKind::kChoice,
           .fallback = "auto",
           .help = "the prompt's form whatever the model in the request is called; auto: by that "
                   "name (DeepSeek-V4-Pro, DeepSeek-V4.1-Flash and the line's aliases)",
           .in_config = false,
           .choices = "auto|deepseek-v4|deepseek-v4.1"},
          {.name = "api",
           .kind = FlagKind::kChoice,
           .fallback = "auto",
           .help = "whose request it is; auto: the line says it, and with --text `input` means "
                   "responses, else chat",
           .in_config = false,
           .choices = "auto|chat|messages|responses"},
          {.name = "tokenizer",
           .help = "tokenizer.json or a model file: token ids too",
           .value_name = "FILE",
           .in_config = false},
          {.name = "rules",
           .kind = FlagKind::kChoice,
           .fallback = "recipe",
           .help = "recipe: as the official package; serving: as the server, which takes any "
                   "model's name and honours more fields",
           .in_config = false,
           .choices = "recipe|serving"},
          {.name = "text",
           .kind = FlagKind::kSwitch,
           .fallback = "false",
           .help = "the input is one request; its prompt is printed as it is",
           .in_config = false},
          {.name = "show",
           .kind = FlagKind::kChoice,
           .fallback = "prompt",
           .help = "with --text: the prompt; with special tokens in ⟦ ⟧; or a token a line",
           .in_config = false,
           .choices = "prompt|marked|tokens"},
      },
      run_codec_render,
  };
}

}  // namespace artery::cli
