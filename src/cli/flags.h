#pragma once
// The table behind every verb: one Flag is a command-line option, an environment variable
// ARTERY_<NAME> and a key of the --config file at once. Plain values made by each verb_*.cc, read
// by args.cc (command line, help) and options.cc (environment, file, defaults, checks).
// Main thread only.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace artery::cli {

enum class FlagKind {
  kText,
  kChoice,   // one of `choices`, "a|b"
  kInteger,  // in [min, max]
  kNumber,   // floating point in [min, max]
  kSwitch,   // on or off
  kBytes,    // an integer with an optional unit: 512, 64M, 2G (powers of 1024)
};

struct Flag {
  std::string_view name;  // "max-model-len"; typed with - or _ alike
  FlagKind kind = FlagKind::kText;
  std::string_view fallback = "";  // default, as one would type it
  std::string_view help = "";
  std::string_view value_name = "";
  char letter = 0;          // "-t"
  bool positional = false;  // may also stand without its name
  bool many = false;        // kText: takes several words, joined by spaces
  bool negatable = false;   // kSwitch: --no-NAME exists, as --enable-prefix-caching has it
  bool secret = false;      // never printed
  bool in_config = true;    // makes sense in a file
  std::string_view choices = "";
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
};

class Options;

struct Verb {
  std::string_view name;  // "serve", "bench model"
  std::string_view summary;
  std::string_view example;  // shown under --help; one command a line
  std::vector<Flag> flags;
  // Returns the exit code; an error is printed by main and mapped by exit_code().
  Result<int> (*run)(const Options& options) = nullptr;
};

// In the order of the help page.
std::vector<Verb> all_verbs();

// Flags that more than one verb has, so that they are spelled and explained once.
Flag model_flag();
Flag threads_flag();
Flag isa_flag();
Flag numerics_flag();
Flag json_flag();
Flag gpu_layers_flag();
Flag chat_template_flag();
Flag max_model_len_flag();
Flag max_num_seqs_flag();
Flag max_num_batched_tokens_flag();
Flag kv_cache_memory_bytes_flag();
Flag kv_cache_dtype_flag();

}  // namespace artery::cli
