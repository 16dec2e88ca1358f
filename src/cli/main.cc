// The program: parse, resolve, run one verb, map its error to an exit code.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>

#include "cli/args.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/version.h"

namespace artery::cli {

namespace {

const char* environment(const char* name) { return std::getenv(name); }

// `code`, unless standard output did not take all that was written: a full disk, a closed pipe.
Result<int> written(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.flush()) return code;
  return fail(Code::kIo, "cannot write the output: standard output is full or closed");
}

int run_verb(const Parsed& parsed) {
  Result<Options> options = Options::make(*parsed.verb, parsed.given, environment);
  if (!options) {
    print_error(options.error());
    return exit_code(options.error().code);
  }
  Result<int> result = kExitDone;
  if (parsed.print_config)
    std::fputs(options->as_toml().c_str(), stdout);
  else
    result = parsed.verb->run(*options);
  if (result && *result == kExitDone) result = written(kExitDone);
  if (result) return *result;
  print_error(result.error());
  return exit_code(result.error().code);
}

// A page of a mapped file that is no longer there: the file got shorter, or its disk fails. Only
// async-signal-safe calls.
void end_at_lost_page(int, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR && info->si_code != BUS_OBJERR) {
    std::signal(SIGBUS, SIG_DFL);  // a mistake of ours: the instruction runs again and ends us
    return;
  }
  constexpr char kText[] =
      "artery: error: a file in use got shorter or cannot be read any more (the model, while it "
      "loads); check the disk, copy the file again and start again\n";
  if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) _exit(kExitFailed);
  _exit(kExitBadFile);
}

void watch_for_lost_pages() {
  struct sigaction action{};
  action.sa_sigaction = end_at_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

int run_main(int argc, char** argv) {
  const std::vector<Verb> verbs = all_verbs();
  const Parsed parsed = parse_args(verbs, argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.version) {
    std::puts(version_line().c_str());
    return kExitDone;
  }
  return run_verb(parsed);
}

}  // namespace
}  // namespace artery::cli

int main(int argc, char** argv) {
  // A closed pipe on standard output is a write error to handle, not a death by signal.
  std::signal(SIGPIPE, SIG_IGN);
  artery::cli::watch_for_lost_pages();
  try {
    return artery::cli::run_main(argc, argv);
  } catch (const std::bad_alloc&) {
    artery::cli::print_error({artery::Code::kOutOfMemory, "out of memory", ""});
    return artery::cli::kExitNoMemory;
  } catch (const std::exception& error) {
    artery::cli::print_error({artery::Code::kInternal, error.what(), ""});
    return artery::cli::kExitFailed;
  }
}
