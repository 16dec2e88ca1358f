#pragma once
// Flags that say how a model is served, shared by the verbs that answer requests (serve,
// run-batch), and what they mean. Main thread.

#include <string>
#include <vector>

#include "base/log.h"
#include "cli/flags.h"
#include "cli/options.h"
#include "cli/serving.h"
#include "codec/stream/output_parser.h"
#include "server/server.h"

namespace artery::cli {

std::vector<Flag> engine_flags();
std::vector<Flag> parser_flags();
std::vector<Flag> responses_flags();
Flag log_level_flag(std::string_view fallback);

// From engine_flags() and kv_flags(); all but the observer's part is filled in. kInvalidArgument.
Result<ServingWish> serving_wish(const Options& options, const std::string& model_path);
// From parser_flags().
codec::ParserChoice parser_choice(const Options& options);
// From responses_flags() and the engine's seed.
void set_answers(const Options& options, server::Config& config);
LogLevel log_level_of(const Options& options);

}  // namespace artery::cli
