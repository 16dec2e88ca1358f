// `artery eval`: logits and greedy continuations of token ids, JSON Lines in and out.

#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "base/file_system.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/npy.h"
#include "cli/eval_runner.h"
#include "cli/json_lines.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/perplexity.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/serving.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

// What a line asked for, kept until its result is there.
struct Ticket {
  json::value id;
  std::string file;  // "<id>.npy", empty when nothing is stored
  std::vector<std::int64_t> rows;
  std::optional<json::object> answer;
};

// The id names a file, so it must be a plain name.
Result<std::string> file_name(const json::value& id) {
  std::string name;
  if (id.is_string()) name = std::string(id.get_string());
  if (id.is_int64()) name = fmt::format("{}", id.get_int64());
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=@,";
  if (name.empty() || name[0] == '.' || name.find_first_not_of(kAllowed) != std::string::npos)
    return fail_field("id", "names the .npy file: letters, digits and . _ - only, no leading dot");
  return name + ".npy";
}

// "all", "last" (the last prompt token and every forced one) or a list of positions.
Result<std::vector<std::int64_t>> read_rows(
    const JsonLine& line, std::size_t prompt_count, std::size_t count
) {
  const json::value* value = line.find("rows");
  std::vector<std::int64_t> rows;
  if (value != nullptr && value->is_array()) {
    for (const json::value& item : value->get_array()) {
      if (!item.is_int64())
        return fail_field("rows", "must hold positions, got {}", kind_name(item));
      rows.push_back(item.get_int64());
    }
    return rows;
  }
  const std::string word = value == nullptr ? "last" : TRY(line.text("rows", ""));
  if (word != "all" && word != "last")
    return fail_field("rows", "must be \"all\", \"last\" or a list of positions");
  for (std::size_t i = word == "all" ? 0 : prompt_count - 1; i < count; ++i)
    rows.push_back(static_cast<std::int64_t>(i));
  return rows;
}

Result<EvalCase> read_case(const JsonLine& line, const model::ModelInfo& info) {
  for (const std::string_view later : {"token_types", "image_rows"})
    if (line.find(later) != nullptr)
      return fail(Code::kUnsupported, "{}: this model takes text only", later);
  EvalCase wanted;
  wanted.tokens = TRY(line.ids("tokens", info.vocab_size));
  if (wanted.tokens.empty()) return fail_field("tokens", "is missing or empty");
  wanted.prompt_count = wanted.tokens.size();
  const std::vector<TokenId> forced = TRY(line.ids("force", info.vocab_size));
  wanted.tokens.insert(wanted.tokens.end(), forced.begin(), forced.end());
  wanted.rows = TRY(read_rows(line, wanted.prompt_count, wanted.tokens.size()));
  wanted.greedy = TRY(line.integer("greedy", 0));
  wanted.hit = TRY(line.integer("hit", 0));
  if (wanted.greedy < 0) return fail_field("greedy", "must be 0 or more");
  return wanted;
}

class EvalLines {
 public:
  EvalLines(EvalRunner& runner, const model::ModelInfo& info, std::string folder)
      : runner_(runner), info_(info), folder_(std::move(folder)) {}

  Result<> run(std::istream& in, std::ostream& out) {
    std::string text;
    for (bool more = true; more || !runner_.is_idle() || !tickets_.empty();) {
      while (more && runner_.has_room()) {
        more = static_cast<bool>(std::getline(in, text));
        if (more && text.find_first_not_of(" \t\r") != std::string::npos) accept(text);
      }
      if (!runner_.is_idle())
        for (auto& [ticket, result] : runner_.step()) done(ticket, result);
      TRY(write_finished(out));
    }
    return {};
  }

 private:
  void accept(const std::string& text) {
    const std::int64_t number = next_++;
    Ticket& ticket = tickets_[number];
    Result<JsonLine> line = JsonLine::parse(text);
    if (!line) {
      ticket.answer = error_line(nullptr, line.error());
      return;
    }
    ticket.id = line->id();
    if (Result<> started = start(*line, number, ticket); !started)
      ticket.answer = error_line(ticket.id, started.error());
  }

  Result<> start(const JsonLine& line, std::int64_t number, Ticket& ticket) {
    if (!folder_.empty()) ticket.file = TRY(file_name(ticket.id));
    EvalCase wanted = TRY(read_case(line, info_));
    ticket.rows = wanted.rows;
    return runner_.start(number, std::move(wanted));
  }

  void done(std::int64_t number, const EvalResult& result) {
    Ticket& ticket = tickets_[number];
    if (!ticket.file.empty()) {
      const std::int64_t shape[] = {
          static_cast<std::int64_t>(ticket.rows.size()), info_.vocab_size
      };
      if (auto written = write_npy(folder_ + "/" + ticket.file, shape, result.logits); !written) {
        ticket.answer = error_line(ticket.id, written.error());
        return;
      }
    }
    ticket.answer = json::object{
        {"id", ticket.id},
        {"rows", json::value_from(ticket.rows)},
        {"greedy_tokens", json::value_from(result.greedy_tokens)},
        {"margins", json::value_from(result.margins)},
    };
  }

  // Answers leave in the order of their lines.
  Result<> write_finished(std::ostream& out) {
    while (!tickets_.empty() && tickets_.begin()->second.answer) {
      out << json::serialize(*tickets_.begin()->second.answer) << '\n';
      tickets_.erase(tickets_.begin());
    }
    if (!out.flush()) return fail(Code::kIo, "cannot write the output");
    return {};
  }

  EvalRunner& runner_;
  const model::ModelInfo& info_;
  std::string folder_;
  std::map<std::int64_t, Ticket> tickets_;
  std::int64_t next_ = 0;
};

Result<int> run_perplexity(
    model::Model& model, const codec::Tokenizer& tokenizer, const Options& options
) {
  const std::string path = options.text("perplexity");
  constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;
  const std::string text = TRY(system_file_system().read(path, kTextBytesMax));
  Progress progress("reading " + path);
  const auto chunk = static_cast<int>(options.integer("chunk"));
  const Perplexity result = TRY(measure_perplexity(
      model,
      tokenizer,
      text,
      chunk,
      [&](std::int64_t done, std::int64_t total) {
        progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
      }
  ));
  const json::object out = {
      {"text", path},
      {"tokens", result.tokens},
      {"predicted", result.predicted},
      {"mean_nll", result.mean_nll},
      {"perplexity", std::exp(result.mean_nll)},
  };
  std::cout << json::serialize(out) << '\n';
  return kExitDone;
}

Result<int> run_eval(const Options& options) {
  const std::string path = TRY(options.require("model"));
  const std::string cache = options.text("cache");
  if (cache != "off" && cache != "ram")
    return fail_field("--cache", "'{}': a store on disk comes later, use off or ram", cache);
  const std::string folder = options.text("output");
  std::error_code why;
  if (!folder.empty()) std::filesystem::create_directories(folder, why);
  if (why) return fail(Code::kIo, "--output {}: {}", folder, why.message());
  set_log_level(LogLevel::kWarn);
  const bool perplexity = !options.text("perplexity").empty();
  std::shared_ptr<const codec::Tokenizer> tokenizer;
  BareModel bare =
      TRY(load_bare_model(path, compute_wish(options, true), {}, perplexity ? &tokenizer : nullptr)
      );
  if (perplexity) return run_perplexity(*bare.model, *tokenizer, options);
  const EvalSettings settings{
      .batch = static_cast<int>(options.integer("batch")),
      .chunk = static_cast<int>(options.integer("chunk")),
      .cache = cache == "ram",
  };
  const std::unique_ptr<EvalRunner> runner =
      TRY(EvalRunner::make(*bare.model, settings, usable_memory_bytes() / 4));
  EvalLines lines(*runner, bare.model->info(), folder);
  TRY(with_input(options.text("input"), [&](std::istream& in) { return lines.run(in, std::cout); })
  );
  return kExitDone;
}

}  // namespace

Verb eval_verb() {
  using K = FlagKind;
  return {
      "eval",
      "logits and greedy continuations of token ids: JSON Lines in and out",
      R"(echo '{"id":"a","tokens":[1,2,3],"rows":"last","greedy":4}' | artery eval model.gguf --output out)"
      "\nartery eval model.gguf --perplexity text.txt",
      {
          model_flag(),
          {.name = "input",
           .help = "JSON Lines file; empty or -: standard input",
           .value_name = "FILE",
           .positional = true,
           .in_config = false},
          {.name = "output",
           .help = "folder for <id>.npy, float32 [rows, vocab]; empty: none",
           .value_name = "DIR",
           .in_config = false},
          {.name = "batch",
           .kind = K::kInteger,
           .fallback = "1",
           .help = "sequences run together; changes no bit",
           .value_name = "N",
           .in_config = false,
           .min = 1,
           .max = 4096},
          {.name = "chunk",
           .kind = K::kInteger,
           .fallback = "512",
           .help = "most prompt tokens of a sequence in one step; changes no bit",
           .value_name = "N",
           .in_config = false,
           .min = 1,
           .max = 65536},
          {.name = "cache",
           .fallback = "off",
           .help = "ram: start from pages of earlier lines; changes no bit (off|ram)",
           .value_name = "WHERE",
           .in_config = false},
          {.name = "perplexity",
           .help = "print the mean negative log-likelihood of this text",
           .value_name = "FILE",
           .in_config = false},
          kv_cache_dtype_flag(),
          threads_flag(),
          isa_flag(),
          numerics_flag(),
      },
      run_eval,
  };
}

}  // namespace artery::cli
