// `artery tokenize` and `artery detokenize`: JSON Lines in and out.

#include <cstdio>
#include <functional>
#include <iostream>
#include <vector>

#include "base/clock.h"
#include "cli/base64.h"
#include "cli/hf_tokenizer_loader.h"
#include "cli/json_lines.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "codec/stream/detokenizer.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

Flag input_flag() {
  return {
      .name = "input",
      .help = "JSON Lines file; empty or -: standard input",
      .value_name = "FILE",
      .positional = true,
      .in_config = false,
  };
}

// What encoding alone has taken, without JSON and files.
struct Speed {
  std::size_t bytes = 0, tokens = 0;
  double seconds = 0;
};

Result<json::object> tokenize(
    const codec::Tokenizer& tokenizer, const JsonLine& line, Speed& speed
) {
  std::string text;
  if (line.find("bytes_b64") != nullptr) {
    Result<std::string> bytes = base64_decode(TRY(line.text("bytes_b64")));
    if (!bytes) return fail_field("bytes_b64", "{}", bytes.error().message);
    text = bytes.take();
  } else {
    text = TRY(line.text("text"));
  }
  const codec::EncodeOptions options{
      .add_special = TRY(line.boolean("add_special", false)),
      .parse_special = TRY(line.boolean("parse_special", false)),
  };
  const double start = system_clock().seconds();
  const std::vector<TokenId> found = tokenizer.encode(text, options);
  speed.seconds += system_clock().seconds() - start;
  speed.bytes += text.size();
  speed.tokens += found.size();
  json::array ids;
  for (const TokenId id : found) ids.emplace_back(id);
  return json::object{{"ids", std::move(ids)}};
}

// A string of JSON must be text: true when the bytes are whole, valid UTF-8.
bool is_utf8(const std::string& bytes) {
  codec::Utf8Stream stream;
  return stream.push(bytes) + stream.finish() == bytes;
}

Result<json::object> detokenize(const codec::Tokenizer& tokenizer, const JsonLine& line) {
  const auto vocab_size = static_cast<std::int64_t>(tokenizer.vocab().tokens.size());
  if (line.find("ids") == nullptr) return fail_field("ids", "is missing");
  const std::vector<TokenId> ids = TRY(line.ids("ids", vocab_size));
  const bool skip_special = TRY(line.boolean("skip_special", false));
  const std::string bytes = tokenizer.decode(ids, skip_special);
  json::object out;
  if (is_utf8(bytes))
    out["text"] = bytes;
  else
    out["bytes_b64"] = base64_encode(bytes);
  json::array pieces;
  for (const TokenId id : ids) pieces.emplace_back(base64_encode(tokenizer.piece(id)));
  out["pieces_b64"] = std::move(pieces);
  return out;
}

using LineVerb = std::function<Result<json::object>(const codec::Tokenizer&, const JsonLine&)>;

Result<int> run_lines(const Options& options, const LineVerb& answer) {
  const std::string path = TRY(options.require("model"));
  const std::shared_ptr<const codec::Tokenizer> tokenizer = TRY(load_any_tokenizer(path));
  TRY(with_input(options.text("input"), [&](std::istream& in) {
    return for_each_line(in, std::cout, [&](const JsonLine& line) {
      return answer(*tokenizer, line);
    });
  }));
  return kExitDone;
}

Result<int> run_tokenize(const Options& options) {
  Speed speed;
  const int code = TRY(run_lines(options, [&](const auto& tokenizer, const JsonLine& line) {
    return tokenize(tokenizer, line, speed);
  }));
  if (options.on("timing"))
    fmt::print(
        stderr,
        "{} bytes to {} tokens in {:.4f} s, {:.1f} MiB/s\n",
        speed.bytes,
        speed.tokens,
        speed.seconds,
        speed.seconds > 0 ? static_cast<double>(speed.bytes) / speed.seconds / (1 << 20) : 0.0
    );
  return code;
}
Result<int> run_detokenize(const Options& options) { return run_lines(options, detokenize); }

}  // namespace

Verb tokenize_verb() {
  return {
      "tokenize",
      "texts to token ids: JSON Lines in and out",
      R"(echo '{"id":1,"text":"Hello"}' | artery tokenize model.gguf)"
      "\n"
      "artery tokenize model.gguf texts.jsonl",
      {
          model_flag(),
          input_flag(),
          {.name = "timing",
           .kind = FlagKind::kSwitch,
           .fallback = "false",
           .help = "tell the speed of one core at the end, on standard error",
           .in_config = false},
      },
      run_tokenize,
  };
}

Verb detokenize_verb() {
  return {
      "detokenize",
      "token ids to texts: JSON Lines in and out",
      R"(echo '{"id":1,"ids":[19556]}' | artery detokenize model.gguf)",
      {model_flag(), input_flag()},
      run_detokenize,
  };
}

}  // namespace artery::cli
