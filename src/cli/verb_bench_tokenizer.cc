// `artery bench tokenizer`: how fast one core turns text into token ids.

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "bench/spread.h"
#include "cli/hf_tokenizer_loader.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr double kMiB = 1024 * 1024;

struct Measured {
  std::size_t tokens = 0;
  double first = 0;  // MiB/s of the first time, with nothing in any cache of words
  bench::Spread again;
};

Measured measure(const codec::Tokenizer& tokenizer, const std::string& text, std::int64_t times) {
  Measured out;
  std::vector<double> speeds;
  for (std::int64_t i = 0; i <= times; ++i) {
    const double start = system_clock().seconds();
    out.tokens = tokenizer.encode(text, {}).size();
    const double seconds = std::max(system_clock().seconds() - start, 1e-9);
    const double speed = static_cast<double>(text.size()) / kMiB / seconds;
    if (i == 0)
      out.first = speed;
    else
      speeds.push_back(speed);
  }
  out.again = bench::spread_of(std::move(speeds));
  return out;
}

Result<int> run_bench_tokenizer(const Options& options) {
  const std::string path = TRY(options.require("model"));
  const std::string input = TRY(options.require("file"));
  set_log_level(LogLevel::kWarn);
  constexpr std::size_t kTextMax = std::size_t{1} << 30;
  const std::string text = TRY(system_file_system().read(input, kTextMax));
  if (text.empty()) return fail(Code::kBadFile, "{}: is empty", input);
  const std::shared_ptr<const codec::Tokenizer> tokenizer = TRY(load_any_tokenizer(path));
  const Measured measured = measure(*tokenizer, text, options.integer("repetitions"));
  const auto mib = [](double value) { return fmt::format("{:.1f} MiB/s", value); };
  Table table;
  table.row("text bytes", std::to_string(text.size()), text.size());
  table.row("tokens", std::to_string(measured.tokens), measured.tokens);
  table.row("first time", mib(measured.first), measured.first);
  table.row("min", mib(measured.again.min), measured.again.min);
  table.row("median", mib(measured.again.median), measured.again.median);
  table.row("max", mib(measured.again.max), measured.again.max);
  table.print(options.on("json"));
  return kExitDone;
}

}  // namespace

Verb bench_tokenizer_verb() {
  return {
      "bench tokenizer",
      "how fast one core turns a text into token ids",
      "artery bench tokenizer model.gguf --file book.txt",
      {
          model_flag(),
          {.name = "file", .help = "text to tokenize", .value_name = "FILE", .in_config = false},
          {.name = "repetitions",
           .kind = FlagKind::kInteger,
           .fallback = "5",
           .help = "times after the first",
           .value_name = "N",
           .letter = 'r',
           .in_config = false,
           .min = 1,
           .max = 10000},
          json_flag(),
      },
      run_bench_tokenizer,
  };
}

}  // namespace artery::cli
