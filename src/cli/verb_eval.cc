// `artery eval`: logits and greedy continuations of token ids, JSON Lines in and out.

#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "base/file_system.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/npy.h"
#include "cli/eval_compare.h"
#include "cli/eval_runner.h"
#include "cli/json_lines.h"
#include "cli/kv_flags.h"
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

Result<int> run_compare(model::Model& model, const Options& options) {
  const auto rows = static_cast<int>(options.integer("swa-replay"));
  const auto settings =
      TRY(parse_comparison(options.text("compare"), rows > 0 ? rows : kReplayRows));
  if (!engine::WindowShape::of(model.kv_layout()))
    log_warn("this model has no sliding-window layers: exact and replay are the same for it");
  const std::unique_ptr<HitComparer> comparer =
      TRY(HitComparer::make(model, settings, static_cast<int>(options.integer("chunk"))));
  CompareReport report(settings, model.info().vocab_size);
  TRY(with_input(options.text("input"), [&](std::istream& in) -> Result<> {
    report.add_all(in, *comparer);
    return {};
  }));
  TRY(report.check());
  std::cout << (options.on("json") ? json::serialize(report.json()) + "\n" : report.text());
  return kExitDone;
}

Result<std::unique_ptr<EvalStore>> open_eval_store(
    const std::string& folder, const std::string& key_file, const model::Model& model, int replay
) {
  TRY(EvalStore::check(model.kv_layout()));
  KvWish wish;
  wish.store.folder = folder;
  wish.store.encryption_key_file = key_file;
  wish.store.encrypt = !key_file.empty();
  auto opened = open_kv_store(wish, model.kv_layout(), system_file_system(), system_clock());
  if (!opened && opened.error().code == Code::kUnavailable) {
    log_warn("{}; it is only read", opened.error().message);
    wish.store.read_only = true;
    opened = open_kv_store(wish, model.kv_layout(), system_file_system(), system_clock());
  }
  return EvalStore::make(TRY(std::move(opened)), model, replay);
}

void warn_of_replay(const model::Model& model, int rows) {
  const auto shape = engine::WindowShape::of(model.kv_layout());
  if (!shape)
    return log_warn("--swa-replay has no effect: this model has no sliding-window layers");
  if (rows >= shape.reach)
    return log_warn("--swa-replay {} has no effect: {} rows are exact", rows, shape.reach);
  log_warn("--swa-replay: after a hit results differ from those of a cold run");
}

Result<> check_flags(const Options& options) {
  if (options.text("compare").empty()) return {};
  for (const std::string_view other : {"perplexity", "output"})
    if (!options.text(other).empty())
      return fail_field("--compare", "goes without --{}: it prints a report of its own", other);
  // Before a model is loaded.
  TRY(parse_comparison(options.text("compare"), kReplayRows));
  return {};
}

Result<int> run_eval(const Options& options) {
  const std::string path = TRY(options.require("model"));
  const std::string cache = options.text("cache");
  const bool in_folder = cache != "off" && cache != "ram";
  if (in_folder && cache.find('/') == std::string::npos && !std::filesystem::is_directory(cache))
    return fail_field(
        "--cache", "'{}': off, ram, or the folder of a store (./{} for a new one)", cache, cache
    );
  if (!in_folder && !options.text("kv-encryption-key-file").empty())
    return fail_field(
        "--kv-encryption-key-file", "goes with --cache FOLDER: '{}' has nothing to encrypt", cache
    );
  TRY(check_flags(options));
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
  if (!options.text("compare").empty()) return run_compare(*bare.model, options);
  const auto replay = static_cast<int>(options.integer("swa-replay"));
  if (replay > 0) warn_of_replay(*bare.model, replay);
  std::unique_ptr<EvalStore> store;
  if (in_folder)
    store = TRY(open_eval_store(
        cache, options.text("kv-encryption-key-file"), *bare.model, replay > 0 ? replay : -1
    ));
  const EvalSettings settings{
      .batch = static_cast<int>(options.integer("batch")),
      .chunk = static_cast<int>(options.integer("chunk")),
      .cache = cache == "ram",
      .windows_gone = replay > 0 || in_folder,
      .swa_replay = replay > 0 ? replay : -1,
      .store = store.get(),
  };
  const std::unique_ptr<EvalRunner> runner =
      TRY(EvalRunner::make(*bare.model, settings, usable_memory_bytes() / 4));
  EvalLines lines(*runner, bare.model->info(), folder);
  TRY(with_input(options.text("input"), [&](std::istream& in) { return lines.run(in, std::cout); })
  );
  if (store == nullptr) return kExitDone;
  TRY(store->flush());
  std::cerr << fmt::format("{}: {} tokens came from there\n", cache, store->tokens_loaded());
  if (store->records_refused() > 0)
    log_warn("--cache {}: it took no more records of {} lines", cache, store->records_refused());
  return kExitDone;
}

std::vector<Flag> cache_flags() {
  using K = FlagKind;
  return {
      {.name = "cache",
       .fallback = "off",
       .help =
           "start from pages of earlier lines: off, ram, or the folder of a store, where serve's "
           "and later runs find them too; changes no bit",
       .value_name = "WHERE",
       .in_config = false},
      {.name = "kv-encryption-key-file",
       .help = "of a --cache folder that is encrypted, or is to be: as serve's",
       .value_name = "FILE",
       .in_config = false},
      {.name = "swa-replay",
       .kind = K::kInteger,
       .fallback = "0",
       .help = "sliding-window layers: run only N rows again before a hit, which changes bits; 0: "
               "exact",
       .value_name = "N",
       .in_config = false,
       .min = 0,
       .max = 1 << 20},
      {.name = "compare",
       .help = "compare two ways to go on after a hit, each of exact, replay[:N], cold: divergence "
               "and agreement on the input's prompts",
       .value_name = "A,B",
       .in_config = false}
  };
}

std::vector<Flag> eval_flags() {
  using K = FlagKind;
  std::vector<Flag> flags = {
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
       .max = 65536}
  };
  for (Flag& flag : cache_flags()) flags.push_back(flag);
  flags.push_back(
      {.name = "perplexity",
       .help = "print the mean negative log-likelihood of this text",
       .value_name = "FILE",
       .in_config = false}
  );
  for (const Flag& flag :
       {kv_cache_dtype_flag(), threads_flag(), isa_flag(), numerics_flag(), json_flag()})
    flags.push_back(flag);
  return flags;
}

}  // namespace

Verb eval_verb() {
  return {
      "eval",
      "logits and greedy continuations of token ids: JSON Lines in and out",
      R"(echo '{"id":"a","tokens":[1,2,3],"rows":"last","greedy":4}' | artery eval model.gguf --output out)"
      "\nartery eval model.gguf --perplexity text.txt"
      "\nartery eval model.gguf --compare exact,replay prompts.jsonl",
      eval_flags(),
      run_eval,
  };
}

}  // namespace artery::cli
