// `artery codec image`: images to what DeepSeek V4.1 is given of them, and what they cost in
// tokens. JSON Lines in and out, in the form of the record.

#include <iostream>

#include "cli/image_case.h"
#include "cli/json_lines.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "server/http/image_fetcher.h"

namespace artery::cli {
namespace {

using codec::api::Json;
using codec::api::JsonTree;
using codec::api::put_json_string;

std::string answer_line(const std::string& text, ImageCases& cases) {
  const auto tree = JsonTree::parse(text);
  const Json* const id = tree ? tree->root().find("id") : nullptr;
  std::string out = "{\"id\":" + (id == nullptr ? "null" : codec::api::to_json(*id)) + ',';
  std::string wrong;
  if (!tree) {
    wrong = "not a JSON line: " + tree.error();
  } else if (!tree->root().is_object()) {
    wrong = "a line must be an object: {\"id\",\"op\",...}";
  } else {
    const auto answer = cases.answer(tree->root());
    if (answer) return out + *answer + '}';
    wrong = answer.error().message;
  }
  out += R"("error":{"message":)";
  put_json_string(out, wrong);
  return out + R"(,"type":"invalid_request_error"}})";
}

Result<int> run_codec_image(const Options& options) {
  server::http::ImageFetcherConfig config;
  if (options.text("fetch") == "none")
    config.admits = [](const std::string&, const std::string&) { return false; };
  server::http::HttpImageFetcher fetcher(config);
  ImageCases cases(fetcher);
  TRY(with_input(options.text("input"), [&](std::istream& in) -> Result<> {
    for (std::string line; std::getline(in, line);) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      std::cout << answer_line(line, cases) << '\n';
    }
    std::cout.flush();
    if (!std::cout) return fail(Code::kIo, "standard output: cannot write");
    return {};
  }));
  return kExitDone;
}

}  // namespace

Verb codec_image_verb() {
  return {
      "codec image",
      "images to DeepSeek V4.1's sizes, tokens and stored form: JSON Lines",
      "artery codec image images.jsonl\n"
      "artery codec image --fetch public urls.jsonl",
      {
          {.name = "input",
           .help = "lines {\"id\",\"op\",...}; op is preprocess {input_base64, detail}, "
                   "token_adjustment {sizes} or resolve {sources}; empty or -: standard input",
           .value_name = "FILE",
           .positional = true,
           .in_config = false},
          {.name = "fetch",
           .kind = FlagKind::kChoice,
           .fallback = "none",
           .help = "which addresses http(s) sources may be fetched from; public: none of this "
                   "machine, its networks or its cloud",
           .in_config = false,
           .choices = "none|public"},
      },
      run_codec_image,
  };
}

}  // namespace artery::cli
