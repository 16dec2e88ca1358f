// Answers a file of prompts, one a line, in one batch, without a server:
//
//   offline_inference MODEL.gguf PROMPTS.txt [max_tokens] [temperature] [seed]
//
// Prints one answer a line, in the order of the prompts, new lines inside an answer as "\n"; the
// speed goes to standard error. With temperature 0 (the default) or a seed, an answer does not
// depend on which other prompts are in the file.

#include <artery/engine.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cli/vocab_loader.h"

namespace {

using artery::Result;
using artery::TokenId;

struct Options {
  std::string model_path;
  std::string prompts_path;
  std::int64_t max_tokens = 64;
  double temperature = 0;
  std::uint64_t seed = 1;
};

// Members are destroyed last to first: the engine before what its model computes with.
struct Loaded {
  std::unique_ptr<artery::tensor::ComputePool> pool;
  std::unique_ptr<artery::tensor::Backend> backend;
  std::unique_ptr<artery::codec::Tokenizer> tokenizer;
  std::unique_ptr<artery::engine::Engine> engine;
};

Result<std::vector<std::string>> read_lines(const std::string& path) {
  std::ifstream in(path);
  if (!in) return artery::fail(artery::Code::kNotFound, "{}: cannot be opened", path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

Result<Loaded> load(const std::string& path, int prompts) {
  const auto file = TRY(artery::model::GgufFile::open(path));
  Loaded out;
  out.pool = std::make_unique<artery::tensor::ComputePool>(artery::tensor::default_threads());
  out.backend = artery::tensor::make_fast_backend(*out.pool, artery::tensor::best_isa());
  auto vocab = TRY(artery::cli::load_vocab(*file));
  out.tokenizer = TRY(artery::codec::Tokenizer::make(std::move(vocab)));
  auto model = TRY(artery::model::load_model(*file, *out.backend, {}));
  artery::engine::Config config;
  config.inbox_max = prompts + 1;
  out.engine = TRY(artery::engine::make_engine(std::move(model), config));
  return out;
}

artery::engine::Request request_of(
    const Options& options, const artery::codec::Tokenizer& tokenizer, const std::string& prompt
) {
  artery::engine::Request request;
  request.prompt = tokenizer.encode(prompt, {.add_special = true});
  request.max_tokens = options.max_tokens;
  request.sampling.temperature = options.temperature;
  request.sampling.seed = options.seed;
  request.sampling.stop_ids = tokenizer.vocab().end_of_generation;
  return request;
}

// Waits for the end of one request with one choice.
Result<std::vector<TokenId>> wait_for(artery::engine::EventStream& events) {
  std::vector<TokenId> tokens;
  while (true) {
    const auto event = events.wait(1000);
    if (!event) continue;
    tokens.insert(tokens.end(), event->token_ids.begin(), event->token_ids.end());
    if (!event->finish) continue;
    if (event->finish->reason == artery::engine::FinishReason::kError) {
      return artery::fail(artery::Code::kInternal, "{}", event->finish->message);
    }
    return tokens;
  }
}

std::string on_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

Result<void> run(const Options& options) {
  const std::vector<std::string> prompts = TRY(read_lines(options.prompts_path));
  const Loaded loaded = TRY(load(options.model_path, static_cast<int>(prompts.size())));
  const auto start = std::chrono::steady_clock::now();
  // Shared with the engine, which writes to it until the request has ended.
  std::vector<std::shared_ptr<artery::engine::EventStream>> answers;
  for (const std::string& prompt : prompts) {
    answers.push_back(std::make_shared<artery::engine::EventStream>());
    TRY(loaded.engine->submit(request_of(options, *loaded.tokenizer, prompt), answers.back()));
  }
  std::size_t generated = 0;
  for (const auto& events : answers) {
    const std::vector<TokenId> tokens = TRY(wait_for(*events));
    generated += tokens.size();
    std::printf("%s\n", on_one_line(loaded.tokenizer->decode(tokens, true)).c_str());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::fprintf(
      stderr,
      "%zu prompts, %zu tokens generated in %.2f s (%.1f tokens/s)\n",
      prompts.size(),
      generated,
      took.count(),
      static_cast<double>(generated) / took.count()
  );
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr, "usage: %s MODEL.gguf PROMPTS.txt [max_tokens] [temperature] [seed]\n", argv[0]
    );
    return 2;
  }
  Options options{argv[1], argv[2]};
  if (argc > 3) options.max_tokens = std::atoll(argv[3]);
  if (argc > 4) options.temperature = std::atof(argv[4]);
  if (argc > 5) options.seed = std::strtoull(argv[5], nullptr, 10);
  const auto done = run(options);
  if (done) return 0;
  std::fprintf(stderr, "error: %s\n", done.error().message.c_str());
  return 1;
}
