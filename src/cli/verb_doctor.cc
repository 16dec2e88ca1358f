// `artery doctor`: what this machine is, what will be slow and why, and whether a model fits.

#include "base/memory_limit.h"
#include "bench/limits.h"
#include "cli/kv_flags.h"
#include "cli/machine.h"
#include "cli/memory_plan.h"
#include "cli/model_facts.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/plan_text.h"
#include "cli/report.h"
#include "cli/serving.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "engine/kv_pool.h"
#include "model/load.h"
#include "model/memory_needs.h"
#include "tensor/compute_pool.h"
#include "tensor/isa.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Things that cost speed here, each with its reason and what to do.
class Advice {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    items_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  void put(Table& table) const {
    json::array list;
    table.line(
        items_.empty() ? "\nNothing here will slow Artery down." : "\nWhat will be slow, and why:"
    );
    for (const std::string& item : items_) {
      table.line("  - " + item);
      list.emplace_back(item);
    }
    table.json_only("advice", std::move(list));
  }

 private:
  std::vector<std::string> items_;
};

void cpu_rows(Table& table, Advice& advice, const MachineFacts& facts) {
  const tensor::CpuLimits limits = tensor::cpu_limits();
  const int threads = tensor::default_threads();
  table.row("cpu", facts.cpu);
  table.row("cores", fmt::format("{}", limits.cores), limits.cores);
  table.row("affinity", fmt::format("{} cores", limits.affinity), limits.affinity);
  table.row(
      "quota",
      limits.quota_cores > 0 ? fmt::format("{:.2f} cores (cgroup)", limits.quota_cores) : "none",
      limits.quota_cores
  );
  table.row("threads", fmt::format("{} (default)", threads), threads);
  table.row("load", fmt::format("{:.2f}", facts.load), facts.load);
  const std::string isa(tensor::name(tensor::best_isa()));
  table.row("isa", isa);
  if (limits.quota_cores > 0 && limits.quota_cores < limits.affinity)
    advice.add(
        "the cgroup gives {:.2f} of {} cores: more threads than that are stopped for part of each "
        "period; the default of {} keeps within it",
        limits.quota_cores,
        limits.affinity,
        threads
    );
  if (!facts.cpu_flags_missing.empty())
    advice.add("the CPU lacks {}: the {} path is used", facts.cpu_flags_missing, isa);
  if (facts.load > limits.affinity * 0.75 + 0.25)
    advice.add(
        "the load is {:.1f} on {} cores: other processes take time from decoding",
        facts.load,
        limits.affinity
    );
  if (facts.governor == "powersave")
    advice.add("the frequency governor is powersave: `performance` decodes faster");
}

// GB/s of reading memory.
double speed_rows(Table& table, Advice& advice) {
  tensor::ComputePool pool(tensor::default_threads());
  const auto usable = static_cast<std::size_t>(usable_memory_bytes());
  const std::size_t bytes = usable / 4 < bench::kProbeBytes ? usable / 4 : bench::kProbeBytes;
  const bench::Spread read = bench::measure_read_bandwidth(pool, bytes, 5, system_clock());
  table.row(
      "memory bandwidth",
      fmt::format(
          "{:.1f} GB/s now (min {:.1f}, max {:.1f}; {} threads)",
          read.median,
          read.min,
          read.max,
          pool.threads()
      ),
      read.median
  );
  const bench::Spread dot = bench::measure_int8_dot(pool, tensor::best_isa(), 5, system_clock());
  if (dot.median > 0)
    table.row("int8 dot peak", fmt::format("{:.0f} GOP/s now", dot.median), dot.median);
  if (read.median > 0 && read.max > 1.5 * read.min)
    advice.add(
        "memory bandwidth swings between {:.1f} and {:.1f} GB/s: something else uses it now",
        read.min,
        read.max
    );
  return read.median;
}

void system_rows(Table& table, Advice& advice, const MachineFacts& facts) {
  const MemoryLimit memory = memory_limit();
  table.row(
      "memory",
      fmt::format(
          "{:.1f} GiB, {:.1f} GiB usable{}",
          static_cast<double>(memory.machine_total) / kGiB,
          static_cast<double>(memory.available()) / kGiB,
          memory.cgroup_limit > 0
              ? fmt::format(
                    " (cgroup limit {:.1f} GiB)", static_cast<double>(memory.cgroup_limit) / kGiB
                )
              : ""
      ),
      memory.available()
  );
  table.row("huge pages", facts.huge_pages);
  table.row("disk free", bytes_text(static_cast<double>(facts.disk_free)), facts.disk_free);
  table.row("io_uring", facts.io_uring);
  table.row("memlock limit", facts.memlock);
  table.row("open files limit", facts.open_files);
  table.row("governor", facts.governor);
  if (facts.huge_pages == "never")
    advice.add(
        "transparent huge pages are off: weights in 4 KiB pages cost address translations; "
        "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` as root"
    );
}

void plan_rows(Table& table, Advice& advice, const MemoryPlan& plan) {
  table.row("fits", "yes: " + plan.text(), true);
  table.json_only("context", plan.context);
  for (const std::string& line : plan_lines(plan)) table.line(line);
  table.line(fmt::format(
      "  {:<12}{:>11}  left free", "headroom", bytes_text(static_cast<double>(plan.headroom_bytes))
  ));
  table.line("\nHow many sequences fit at once:");
  for (const std::string& line : fit_lines(plan)) table.line(line);
  table.json_only("plan", plan_json(plan));
  if (plan.context < plan.model_context)
    advice.add("the context is cut to {} of {} tokens by memory", plan.context, plan.model_context);
}

// Decoding one sequence reads the weights once a token; of a mixture only the experts it uses.
void decode_row(Table& table, const model::ModelInfo& info, double read_gb_s) {
  if (read_gb_s <= 0 || info.read_bytes_per_token <= 0) return;
  constexpr double kGiga = 1e9;
  const double rate = read_gb_s * kGiga / static_cast<double>(info.read_bytes_per_token);
  table.row(
      "decode at most",
      fmt::format(
          "{:.1f} tokens/s for one sequence: {} read a token",
          rate,
          bytes_text(static_cast<double>(info.read_bytes_per_token))
      ),
      rate
  );
}

// The tier behind the RAM: how many tokens' keys and values the folder will hold.
void store_row(Table& table, kvstore::StoreConfig store, std::int64_t bytes_per_token) {
  if (store.folder.empty()) {
    table.row("kv store", "none", 0);
    return;
  }
  choose_sizes(store);
  const std::int64_t tokens = store.bytes_max / std::max<std::int64_t>(bytes_per_token, 1);
  table.row(
      "kv store",
      fmt::format(
          "{} in {}: about {} tokens",
          bytes_text(static_cast<double>(store.bytes_max)),
          store.folder,
          tokens
      ),
      tokens
  );
}

Result<PlanFlags> plan_flags(const Options& options) {
  const ComputeWish wish = compute_wish(options, true);
  PlanFlags flags;
  flags.kv_type = TRY(kv_type_of(wish));
  flags.reference = wish.numerics == "reference";
  flags.threads = wish.threads > 0 ? wish.threads : tensor::default_threads();
  flags.max_model_len = options.integer("max-model-len");
  flags.kv_pool_bytes = options.integer("kv-cache-memory-bytes");
  flags.max_num_seqs = static_cast<int>(options.integer("max-num-seqs"));
  flags.store.folder = TRY(kv_folder(options));
  flags.store.bytes_max = options.integer("kv-max-bytes");
  flags.max_num_batched_tokens = static_cast<int>(options.integer("max-num-batched-tokens"));
  return flags;
}

Result<> model_rows(Table& table, Advice& advice, const Options& options, double read_gb_s) {
  const std::string path = options.text("model");
  const std::unique_ptr<model::ModelFile> file = TRY(open_model_file(path));
  const model::ModelInfo info = TRY(model::check_model(*file));
  const auto tokenizer = TRY(load_tokenizer(*file));
  const PlanFlags flags = TRY(plan_flags(options));
  const model::MemoryNeeds needs = TRY(model_needs(*file, flags));
  table.line(fmt::format("\n{}", path));
  table.row("model", fmt::format("{} ({})", info.name, info.architecture));
  table.json_only("parameters", info.parameters);
  table.row(
      "weights",
      fmt::format(
          "{}: {}",
          bytes_text(static_cast<double>(needs.weight_bytes())),
          weights_text(needs.weights)
      ),
      needs.weight_bytes()
  );
  const std::int64_t per_token =
      engine::KvPool::page_bytes(needs.kv, model::KvKind::kGlobal) / needs.kv.page_tokens;
  table.row(
      "kv bytes per token",
      fmt::format("{} ({})", per_token, tensor::name(flags.kv_type)),
      per_token
  );
  store_row(table, flags.store, per_token);
  decode_row(table, info, read_gb_s);
  if (!info.slow_types.empty()) advice.add("{}", slow_types_advice(info));
  table.row("model context", fmt::format("{} tokens", info.context_length), info.context_length);
  const Result<MemoryPlan> plan = make_plan(*file, info, flags);
  if (plan) {
    plan_rows(table, advice, *plan);
    return {};
  }
  if (plan.error().code != Code::kOutOfMemory) return tl::unexpected<Error>(plan.error());
  table.row("fits", "no: " + plan.error().message, false);
  table.json_only("context", json::value(0));
  advice.add("{} does not fit: {}", info.name, plan.error().message);
  return {};
}

Result<int> run_doctor(const Options& options) {
  const std::string path = options.text("model");
  const MachineFacts facts = machine_facts(path);
  Table table;
  Advice advice;
  table.row("version", version_line());
  cpu_rows(table, advice, facts);
  const double read_gb_s = options.on("speed") ? speed_rows(table, advice) : 0;
  system_rows(table, advice, facts);
  Result<> model = path.empty() ? Result<>{} : model_rows(table, advice, options, read_gb_s);
  advice.put(table);
  table.print(options.on("json"));
  if (!model) return tl::unexpected<Error>(model.error());
  return kExitDone;
}

std::vector<Flag> doctor_flags() {
  return {
      model_flag(),
      max_model_len_flag(),
      max_num_seqs_flag(),
      max_num_batched_tokens_flag(),
      kv_cache_dtype_flag(),
      kv_cache_memory_bytes_flag(),
      kv_dir_flag(),
      kv_max_bytes_flag(),
      threads_flag(),
      isa_flag(),
      numerics_flag(),
      {.name = "speed",
       .kind = FlagKind::kSwitch,
       .fallback = "true",
       .help = "measure memory bandwidth and multiply rate; takes a second or two",
       .negatable = true},
      json_flag(),
  };
}

}  // namespace

Verb doctor_verb() {
  return {
      "doctor",
      "this machine: what it has, what will be slow and why, and whether a model fits",
      "artery doctor model.gguf\n"
      "artery doctor model.gguf --max-model-len 32768 --max-num-seqs 8 --no-speed",
      doctor_flags(),
      run_doctor,
  };
}

}  // namespace artery::cli
