// `artery run`: chat in the terminal, or one shot.

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/random.h"
#include "cli/chat_session.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace {

// What the handler may touch; Ctrl-C must wake a read of the terminal, so this is a real handler.
volatile std::sig_atomic_t interrupts = 0;
void on_interrupt(int) { interrupts = interrupts + 1; }

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // without SA_RESTART: a read ends with EINTR
  sigaction(SIGINT, &action, nullptr);
}

// One line without its end; nullopt at the end of input or on Ctrl-C.
std::optional<std::string> read_line() {
  std::string line;
  for (char c = 0;;) {
    const ssize_t got = read(STDIN_FILENO, &c, 1);
    if (got < 0 && errno == EINTR && interrupts == 0) continue;
    if (got <= 0) return got == 0 && !line.empty() ? std::optional(line) : std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

std::string read_all() {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got <= 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

double per_second(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

void print_statistics(const engine::Finish& finish) {
  const engine::Usage& usage = finish.usage;
  const std::int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  std::fputs(
      fmt::format(
          "[prompt {} tokens, {} cached; prefill {:.2f} s, {:.0f} tokens/s; {} tokens in {:.2f} s, "
          "{:.1f} tokens/s; {}]\n",
          usage.prompt_tokens,
          usage.cached_tokens,
          usage.timings.prefill_s,
          per_second(computed, usage.timings.prefill_s),
          usage.generated_tokens,
          usage.timings.decode_s,
          per_second(usage.generated_tokens - 1, usage.timings.decode_s),
          engine::name(finish.reason)
      )
          .c_str(),
      stderr
  );
}

Result<> one_turn(ChatSession& session, const std::string& text) {
  const int before = interrupts;
  const auto show = [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  // Nobody reads a closed pipe: the answer ends there, and main reports the lost output.
  const auto stop = [before] { return interrupts != before || std::ferror(stdout) != 0; };
  const ChatSession::Answer answer = TRY(session.say(text, show, stop));
  std::fputs("\n", stdout);
  std::fflush(stdout);
  print_statistics(answer.finish);
  if (answer.finish.reason == engine::FinishReason::kError)
    return fail(Code::kInternal, "{}", answer.finish.message);
  return {};
}

Result<int> chat_loop(ChatSession& session) {
  std::fputs("Chat. Ctrl-C stops an answer; Ctrl-D or Ctrl-C at the prompt ends.\n", stderr);
  for (;;) {
    interrupts = 0;
    std::fputs("> ", stderr);
    const std::optional<std::string> line = read_line();
    if (!line) {
      std::fputs("\n", stderr);
      return interrupts > 0 ? 128 + SIGINT : kExitDone;
    }
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (Result<> done = one_turn(session, *line); !done) print_error(done.error());
  }
}

Result<LoadedModel> load_with_progress(const ServingWish& wish) {
  Progress progress("loading " + file_stem(wish.model_path));
  const auto on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.update(done, total);
  };
  return load_serving(wish, on_progress, {}, system_clock());
}

Result<int> run_run(const Options& options) {
  ServingWish wish;
  wish.model_path = TRY(options.require("model"));
  wish.chat_template = options.text("chat-template");
  wish.compute = compute_wish(options, true);
  wish.max_model_len = options.integer("max-model-len");
  wish.engine.max_num_seqs = 1;
  set_log_level(LogLevel::kWarn);
  const LoadedModel loaded = TRY(load_with_progress(wish));
  ChatSettings settings;
  settings.temperature = options.number("temp");
  const std::int64_t seed = options.integer("seed");
  settings.seed = seed < 0 ? system_random().next() : static_cast<std::uint64_t>(seed);
  if (options.integer("max-tokens") > 0) settings.max_tokens = options.integer("max-tokens");
  settings.raw = options.on("raw");
  ChatSession session = TRY(ChatSession::make(loaded, settings));
  install_interrupt_handler();  // from here on; during the load Ctrl-C just ends
  if (!options.is_set("prompt") && isatty(STDIN_FILENO) == 1) return chat_loop(session);
  TRY(one_turn(session, options.is_set("prompt") ? options.text("prompt") : read_all()));
  return interrupts > 0 ? 128 + SIGINT : kExitDone;
}

}  // namespace

Verb run_verb() {
  return {
      "run",
      "chat in the terminal; one shot with -p or when standard input is not a terminal",
      "artery run model.gguf\n"
      "artery run model.gguf -p 'Why is the sky blue?' --temp 0 --max-tokens 100",
      {
          model_flag(),
          {.name = "prompt",
           .help = "the one thing to say",
           .value_name = "TEXT",
           .letter = 'p',
           .in_config = false},
          {.name = "temp",
           .kind = FlagKind::kNumber,
           .fallback = "0.7",
           .help = "sampling temperature; 0: always the most probable token",
           .value_name = "T",
           .min = 0,
           .max = 100},
          {.name = "seed",
           .kind = FlagKind::kInteger,
           .fallback = "-1",
           .help = "the same seed gives the same answer; -1: a new one each start",
           .value_name = "N",
           .min = -1},
          {.name = "max-tokens",
           .kind = FlagKind::kInteger,
           .fallback = "0",
           .help = "most tokens of an answer; 0: as many as the context holds",
           .value_name = "N",
           .min = 0},
          {.name = "raw",
           .kind = FlagKind::kSwitch,
           .fallback = "false",
           .help = "no chat template: continue the text"},
          chat_template_flag(),
          max_model_len_flag(),
          kv_cache_dtype_flag(),
          threads_flag(),
          isa_flag(),
          numerics_flag(),
          gpu_layers_flag(),
      },
      run_run,
  };
}

}  // namespace artery::cli
