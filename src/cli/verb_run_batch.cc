// `artery run-batch`: a file of requests, answered without a server.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>

#include "base/log.h"
#include "cli/batch_output.h"
#include "cli/batch_runner.h"
#include "cli/kv_flags.h"
#include "cli/line_source.h"
#include "cli/model_file.h"
#include "cli/report.h"
#include "cli/serving_flags.h"
#include "cli/serving_loader.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "server/offline.h"

namespace artery::cli {
namespace {

constexpr std::size_t kEnvelopeBytes = std::size_t{64} << 10;  // of a line beside its body
constexpr int kInboxMin = 4096;  // a completion request may have 1,024 prompts

// Where a batch stands, on standard error: redrawn on a terminal, a line now and then elsewhere.
class BatchProgress {
 public:
  BatchProgress(std::optional<std::int64_t> lines, const Clock& clock)
      : lines_(lines),
        clock_(&clock),
        is_terminal_(isatty(STDERR_FILENO) == 1),
        start_s_(clock.seconds()),
        shown_s_(start_s_) {}

  void show(const BatchCounts& counts, std::int64_t tokens) {
    constexpr double kRedrawSeconds = 0.2, kLineSeconds = 15;
    const double now = clock_->seconds();
    if (now - shown_s_ < (is_terminal_ ? kRedrawSeconds : kLineSeconds)) return;
    shown_s_ = now;
    const std::string of = lines_ ? fmt::format(" of {}", *lines_) : std::string();
    const std::string text = fmt::format(
        "{}{} lines done, {} failed, {:.1f} tokens/s",
        counts.done(),
        of,
        counts.failed,
        static_cast<double>(tokens) / (now - start_s_)
    );
    std::fputs((is_terminal_ ? "\r" + text + "\033[K" : text + "\n").c_str(), stderr);
    drawn_ = is_terminal_;
  }

  void summary(const BatchCounts& counts, std::int64_t tokens) {
    if (drawn_) std::fputs("\r\033[K", stderr);
    const double seconds = clock_->seconds() - start_s_;
    std::fputs(
        fmt::format(
            "{} answered, {} failed, {} answered before; {} tokens in {:.1f} s, {:.1f} tokens/s\n",
            counts.answered,
            counts.failed,
            counts.skipped,
            tokens,
            seconds,
            seconds > 0 ? static_cast<double>(tokens) / seconds : 0
        )
            .c_str(),
        stderr
    );
  }

 private:
  const std::optional<std::int64_t> lines_;
  const Clock* clock_;
  const bool is_terminal_;
  const double start_s_;
  double shown_s_;
  bool drawn_ = false;
};

server::Config api_config(const Options& options, const std::string& model_path) {
  server::Config config;
  config.body_bytes_max = static_cast<std::size_t>(options.integer("max-body-bytes"));
  config.served_model_name = options.text("served-model-name");
  if (config.served_model_name.empty()) config.served_model_name = file_stem(model_path);
  config.log_requests = false;
  config.version = version_number();
  set_answers(options, config);
  return config;
}

// Before the output is opened, which may empty it.
Result<> check_not_the_same(int in, const std::string& out) {
  struct stat a{}, b{};
  const bool known = fstat(in, &a) == 0 && stat(out.c_str(), &b) == 0;
  if (!known || !S_ISREG(a.st_mode) || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return {};
  return fail_field("--output-file", "is the input file; give another one");
}

int requests_max(const Options& options) {
  const auto asked = static_cast<int>(options.integer("max-concurrency"));
  return asked > 0 ? asked : 2 * static_cast<int>(options.integer("max-num-seqs"));
}

struct BatchParts {
  LineSource& source;
  BatchOutput& output;
  SignalWatch& signals;
  int requests_max = 1;
};

Result<int> answer_all(
    server::OfflineApi& api, const engine::Engine& engine, const BatchParts& parts
) {
  BatchProgress progress(parts.source.line_count(), system_clock());
  BatchRunner runner(api, parts.source, parts.output, parts.signals, parts.requests_max);
  const auto ended = runner.run([&](const BatchCounts& counts) {
    progress.show(counts, engine.status().generated_tokens);
  });
  const std::int64_t tokens = engine.status().generated_tokens;
  api.stop();
  TRY(parts.output.sync());
  const std::optional<int> signal = TRY(ended);
  progress.summary(runner.counts(), tokens);
  return signal ? 128 + *signal : kExitDone;
}

Result<int> run_run_batch(const Options& options) {
  const std::string model_path = TRY(options.require("model"));
  TRY(codec::check_parser_choice(parser_choice(options)));
  ServingWish wish = TRY(serving_wish(options, model_path));
  const int most = requests_max(options);
  wish.engine.inbox_max = std::max(kInboxMin, most);
  set_log_level(log_level_of(options));
  server::Config config = api_config(options, model_path);
  LineSource source =
      TRY(LineSource::open(options.text("input-file"), config.body_bytes_max + kEnvelopeBytes));
  TRY(check_not_the_same(source.fd(), options.text("output-file")));
  BatchOutput output = TRY(BatchOutput::open(options.text("output-file"), options.on("overwrite")));
  SignalWatch signals = TRY(SignalWatch::open());
  const Clock& clock = system_clock();
  const std::string name = config.served_model_name;
  auto api = TRY(server::OfflineApi::open(std::move(config), clock));
  ServingLoader loader(
      std::move(wish),
      parser_choice(options),
      name,
      {{}, api->observer(), [&](server::Serving serving) { api->attach(std::move(serving)); }}
  );
  if (const auto signal = signals.wait(-1, loader.done_fd())) leave_now(*signal);
  if (!loader.result()) return tl::unexpected<Error>(loader.result().error());
  const Result<int> code =
      answer_all(*api, *loader.result()->engine, {source, output, signals, most});
  api.reset();  // it shares the engine, whose thread must end before the backend goes
  return code;
}

std::vector<Flag> batch_flags() {
  using K = FlagKind;
  std::vector<Flag> flags = {
      model_flag(),
      {.name = "input-file",
       .fallback = "-",
       .help = "lines {\"custom_id\",\"method\":\"POST\",\"url\":\"/v1/...\",\"body\":{...}}; url: "
               "/v1/chat/completions, /v1/completions, /v1/responses, /v1/messages or "
               "/v1/messages/count_tokens; -: standard input",
       .value_name = "FILE",
       .letter = 'i',
       .in_config = false},
      {.name = "output-file",
       .fallback = "-",
       .help =
           "gets a line for each, in the order they are done: {\"id\",\"custom_id\","
           "\"response\":{\"status_code\",\"request_id\",\"body\"},\"error\"}; a line that is no "
           "request has response null and says why in error. Where the file is there already "
           "the batch goes on: lines whose custom_id it has with status 200 are skipped, all "
           "others are answered (again). -: standard output",
       .value_name = "FILE",
       .letter = 'o',
       .in_config = false},
      {.name = "overwrite",
       .kind = K::kSwitch,
       .fallback = "false",
       .help = "begin anew: what the output file holds is lost",
       .in_config = false},
      {.name = "max-concurrency",
       .kind = K::kInteger,
       .fallback = "0",
       .help = "requests in work at once; 0: twice --max-num-seqs",
       .value_name = "N",
       .min = 0,
       .max = 65536},
      {.name = "served-model-name",
       .help = "name that bodies call the model by; empty: the file's",
       .value_name = "NAME"},
      {.name = "max-body-bytes",
       .kind = K::kBytes,
       .fallback = "32M",
       .help = "longest body of a line",
       .value_name = "SIZE"},
      log_level_flag("warn"),
  };
  for (const std::vector<Flag>& group :
       {engine_flags(), kv_flags(), parser_flags(), responses_flags()})
    flags.insert(flags.end(), group.begin(), group.end());
  // Nothing is refused for being too much: lines wait in their file.
  std::erase_if(flags, [](const Flag& flag) { return flag.name == "max-queued-requests"; });
  return flags;
}

}  // namespace

Verb run_batch_verb() {
  return {
      "run-batch",
      "answers a file of requests (OpenAI's batch files) without a server; goes on after Ctrl-C",
      "artery run-batch model.gguf -i requests.jsonl -o answers.jsonl\n"
      "echo '{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
      "\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}}' | "
      "artery run-batch model.gguf",
      batch_flags(),
      run_run_batch,
  };
}

}  // namespace artery::cli
