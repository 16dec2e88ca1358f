// output_bench TEXT [TOKENS]: how fast one core turns model output into the events of the three
// APIs. TEXT is pushed in chunks of 4 bytes, TOKENS (ids of a deepseek tokenizer, one a line, after
// a first line that names tokenizer.json) one id a chunk. Then TEXT in one push. Best of some runs,
// processor time, as long as the machine has other work. One line of JSON a measurement.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "codec/api/generators.h"
#include "codec/deepseek/output_processor.h"
#include "codec/hf/hf_tokenizer.h"

namespace {

using namespace artery;
using codec::api::EventGenerator;
using codec::deepseek::OutputProcessor;

constexpr int kRuns = 5;

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

std::unique_ptr<EventGenerator> make_generator(const std::string& api) {
  codec::api::AnswerHead head;
  head.id = "id-0";
  head.model = "m-0";
  if (api == "chat") {
    codec::api::ChatAnswer answer;
    answer.head = head;
    answer.thinking = true;
    return codec::api::chat_events(answer);
  }
  if (api == "messages") {
    codec::api::MessagesAnswer answer;
    answer.head = head;
    answer.thinking = true;
    return codec::api::messages_events(answer);
  }
  codec::api::ResponsesAnswer answer;
  answer.head = head;
  answer.thinking = true;
  return codec::api::responses_events(answer);
}

struct Totals {
  std::size_t events = 0, bytes = 0;
};

using Push = std::function<void(OutputProcessor&, EventGenerator&, Totals&)>;

void drain(EventGenerator& generator, Totals& totals) {
  for (const codec::api::ApiEvent& event : generator.take()) {
    ++totals.events;
    totals.bytes += event.data.size();
  }
}

void measure(
    const std::string& api,
    const std::string& what,
    std::size_t chunks,
    std::size_t bytes,
    const codec::Tokenizer* tokenizer,
    const Push& push
) {
  codec::deepseek::ProcessorOptions options;
  options.parsing.stage = codec::api::InitialStage::kReasoningStart;
  double best = 1e9;
  Totals totals;
  for (int run = 0; run < kRuns; ++run) {
    totals = {};
    const auto generator = make_generator(api);
    OutputProcessor processor(options, tokenizer);
    const double start = seconds_now();
    push(processor, *generator, totals);
    (void)processor.finish(codec::deepseek::BackendFinish::kStop, *generator);
    drain(*generator, totals);
    best = std::min(best, seconds_now() - start);
  }
  fmt::print(
      R"({{"api":"{}","what":"{}","chunks":{},"ns_per_chunk":{:.1f},"mb_per_s":{:.1f},"events":{},)"
      R"("event_bytes":{}}})"
      "\n",
      api,
      what,
      chunks,
      best * 1e9 / static_cast<double>(chunks),
      static_cast<double>(bytes) / best / 1e6,
      totals.events,
      totals.bytes
  );
}

// Pieces of about four bytes, between characters.
std::vector<std::string_view> small_pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(at + 4, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

struct Tokens {
  std::unique_ptr<codec::Tokenizer> tokenizer;
  std::vector<TokenId> ids;
};

Tokens read_tokens(const std::string& path) {
  Tokens tokens;
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  auto made = codec::make_hf_tokenizer(read_file(line), {});
  if (!made) {
    fmt::print(stderr, "{}\n", made.error().message);
    return tokens;
  }
  tokens.tokenizer = made.take();
  while (std::getline(in, line)) tokens.ids.push_back(std::stoi(line));
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "output_bench TEXT [TOKENS]\n");
    return 2;
  }
  const std::string text = read_file(argv[1]);
  const std::vector<std::string_view> pieces = small_pieces(text);
  Tokens tokens;
  if (argc > 2) tokens = read_tokens(argv[2]);
  for (const std::string api : {"chat", "responses", "messages"}) {
    measure(
        api,
        "text4",
        pieces.size(),
        text.size(),
        nullptr,
        [&](auto& to, auto& sink, auto& sum) {
          for (const std::string_view piece : pieces) {
            (void)to.text(piece, 1, sink);
            drain(sink, sum);
          }
        }
    );
    measure(api, "one push", 1, text.size(), nullptr, [&](auto& to, auto& sink, auto& sum) {
      (void)to.text(text, 1, sink);
      drain(sink, sum);
    });
    if (tokens.tokenizer == nullptr) continue;
    measure(
        api,
        "tokens",
        tokens.ids.size(),
        text.size(),
        tokens.tokenizer.get(),
        [&](auto& to, auto& sink, auto& sum) {
          for (const TokenId& id : tokens.ids) {
            (void)to.tokens({&id, 1}, {}, sink);
            drain(sink, sum);
          }
        }
    );
  }
  return 0;
}
