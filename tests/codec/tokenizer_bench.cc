// tokenizer_bench MODEL.gguf|tokenizer.json TEXT...: how fast one core turns the joined texts into
// ids. Prints the first call, which meets every word for the first time, and the best of more.
// Processor time, as long as the machine has other work.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/vocab_loader.h"
#include "codec/hf/hf_tokenizer.h"
#include "codec/tokenizer.h"
#include "model/format/gguf.h"

namespace {

using namespace artery;

constexpr std::size_t kTokensMax = 100'000;
constexpr double kSeconds = 1.5;

double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Result<std::unique_ptr<codec::Tokenizer>> load_json(const std::string& path) {
  const std::string text = read_file(path);
  const double start = seconds_now();
  auto made = codec::make_hf_tokenizer(text, {});
  fmt::print("tokenizer.json read and made in {:.1f} ms\n", (seconds_now() - start) * 1e3);
  return made;
}

Result<std::unique_ptr<codec::Tokenizer>> load(const std::string& path) {
  if (path.ends_with(".json")) return load_json(path);
  const auto file = TRY(model::GgufFile::open(path));
  const double start = seconds_now();
  codec::VocabData data = TRY(cli::load_vocab(*file));
  const double read = seconds_now();
  auto made = codec::Tokenizer::make(std::move(data));
  fmt::print(
      "vocabulary read in {:.1f} ms, made in {:.1f} ms\n",
      (read - start) * 1e3,
      (seconds_now() - read) * 1e3
  );
  return made;
}

// The bytes of the first kTokensMax tokens, so that figures of texts of other lengths compare.
std::string cut(const codec::Tokenizer& tokenizer, std::string text) {
  std::vector<TokenId> ids = tokenizer.encode(text, {});
  if (ids.size() <= kTokensMax) return text;
  ids.resize(kTokensMax);
  std::size_t bytes = 0;
  for (const TokenId id : ids) bytes += tokenizer.piece(id).size();
  text.resize(std::min(bytes, text.size()));
  return text;
}

void report(const char* what, std::size_t bytes, std::size_t tokens, double seconds) {
  fmt::print(
      "{}: {} bytes, {} tokens, {:.2f} ms, {:.1f} MiB/s\n",
      what,
      bytes,
      tokens,
      seconds * 1e3,
      static_cast<double>(bytes) / seconds / (1 << 20)
  );
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "tokenizer_bench MODEL.gguf|tokenizer.json TEXT...\n");
    return 2;
  }
  std::stringstream joined;
  for (int i = 2; i < argc; ++i) joined << std::ifstream(argv[i]).rdbuf();
  const auto measuring = load(argv[1]);
  if (!measuring) {
    fmt::print(stderr, "{}\n", measuring.error().message);
    return 1;
  }
  const std::string text = cut(**measuring, joined.str());
  const auto fresh = load(argv[1]);
  double start = seconds_now();
  const std::size_t tokens = (*fresh)->encode(text, {}).size();
  report("first", text.size(), tokens, seconds_now() - start);
  double best = 1e9;
  const double end = seconds_now() + kSeconds;
  while ((start = seconds_now()) < end) {
    (void)(*fresh)->encode(text, {});
    best = std::min(best, seconds_now() - start);
  }
  report("best", text.size(), tokens, best);
  return 0;
}
