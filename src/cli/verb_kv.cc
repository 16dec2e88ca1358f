// `artery kv verify|gc|drop-tenant`: maintenance of a store of KV records, also beside a server
// that has it open.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "cli/key_file.h"
#include "cli/kv_flags.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/signals.h"
#include "cli/store_text.h"
#include "cli/verbs.h"
#include "kvstore/orders.h"
#include "kvstore/store.h"
#include "kvstore/survey.h"
#include "kvstore/tenant_keys.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr std::size_t kShownDamage = 20, kShownTenants = 10;
constexpr std::int64_t kCapLeast = std::int64_t{1} << 30;
constexpr std::int64_t kRecordBytesMost = 4 << 20;  // of the models we know (KvLayout)

std::int64_t now_s() { return system_clock().unix_ms() / 1000; }

std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

Result<std::string> store_folder(const Options& options) {
  std::string folder = TRY(options.require("dir"));
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const auto names = system_file_system().list(folder);
  if (!names) return tl::unexpected<Error>(names.error());
  if (!kvstore::is_store_folder(folder, system_file_system()))
    return fail(
        Code::kBadFile,
        "{}: not a KV store; expected the folder that `artery serve --kv-dir` was given, with "
        "super "
        "and seg-*.akv in it",
        folder
    );
  return folder;
}

// --- verify

void damage_rows(Table& table, const kvstore::Verified& verified) {
  json::array all;
  if (!verified.damaged.empty()) table.line("\ndamaged records");
  for (const kvstore::Damage& damage : verified.damaged) {
    if (all.size() < kShownDamage)
      table.line(fmt::format("  segment {} at {}: {}", damage.segment, damage.offset, damage.what));
    all.push_back(
        json::object{{"segment", damage.segment}, {"offset", damage.offset}, {"what", damage.what}}
    );
  }
  if (all.size() > kShownDamage)
    table.line(fmt::format("  ... and {} more (--json)", all.size() - kShownDamage));
  table.json_only("damaged", std::move(all));
}

void verdict_row(Table& table, const kvstore::Verified& verified, double seconds) {
  table.line("");
  table.row(
      "checked",
      fmt::format(
          "{} records, {} in {:.1f} s ({}/s)",
          verified.records,
          size_text(verified.bytes),
          seconds,
          bytes_text(static_cast<double>(verified.bytes) / std::max(seconds, 1e-6))
      ),
      verified.records
  );
  table.json_only("checked_bytes", verified.bytes);
  if (verified.records_without_key > 0)
    table.row(
        "without key",
        fmt::format(
            "{} records of tenants whose key is gone: nobody can read them; `artery kv "
            "drop-tenant` "
            "overwrites them",
            verified.records_without_key
        ),
        verified.records_without_key
    );
  if (verified.records_unopened > 0)
    table.row(
        "not opened",
        fmt::format(
            "{} encrypted records: their checksums were checked, not whether they open with their "
            "tenants' keys; that takes --kv-encryption-key-file",
            verified.records_unopened
        ),
        verified.records_unopened
    );
  const std::size_t damaged = verified.damaged.size(), troubles = verified.survey.troubles.size();
  const bool is_whole = verified.records_unopened == 0;
  if (!verified.is_clean()) {
    table.row(
        "verdict",
        fmt::format(
            "{} damaged records, {} troubles; a server takes what is damaged for misses, no answer "
            "was or will be wrong",
            damaged,
            troubles
        ),
        "damaged"
    );
  } else if (is_whole) {
    table.row("verdict", "clean: every record is what its checksums say", "clean");
  } else {
    table.row("verdict", "no damage found without the key file", "not all checked");
  }
}

Result<int> run_verify(const Options& options) {
  const std::string folder = TRY(store_folder(options));
  FileSystem& files = system_file_system();
  std::unique_ptr<kvstore::TenantKeys> keys;
  if (const std::string& path = options.text("kv-encryption-key-file"); !path.empty()) {
    warn_of_readers("--kv-encryption-key-file", path);
    const AeadKey master = TRY(kvstore::read_master_key(path, files));
    keys = TRY(kvstore::TenantKeys::open(folder, master, files, system_random(), true));
  }
  const double begun_s = system_clock().seconds();
  auto progress = std::make_unique<Progress>("verifying " + folder);
  const kvstore::Verified verified = TRY(kvstore::verify_store(
      folder,
      files,
      {.now_s = now_s(),
       .keys = keys.get(),
       .progress =
           [&](std::int64_t done, std::int64_t total) {
             progress->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
             return true;
           },
       .pause = [] { std::this_thread::sleep_for(std::chrono::seconds(2)); }}
  ));
  progress.reset();
  Table table;
  store_rows(table, verified.survey, now_s());
  damage_rows(table, verified);
  verdict_row(table, verified, system_clock().seconds() - begun_s);
  table.print(options.on("json"));
  return verified.is_clean() ? kExitDone : kExitBadFile;
}

// --- orders: done here, or by the process that has the folder open

// Opens the store for writing with sizes that leave it as it is.
struct Limits {
  std::int64_t bytes_max = 0;                    // 0: what is there
  std::map<std::string, std::int64_t> quotas{};  // by tenant
  bool are_given() const { return bytes_max > 0 || !quotas.empty(); }
};

Result<std::unique_ptr<kvstore::DiskStore>> open_for_orders(
    const kvstore::Survey& survey, const Limits& limits
) {
  kvstore::StoreConfig config;
  config.folder = survey.status.folder;
  config.bytes_max =
      limits.bytes_max > 0 ? limits.bytes_max : std::max(kCapLeast, survey.status.bytes_used);
  config.quotas = limits.quotas;
  for (const kvstore::SpaceLine& space : survey.spaces)
    config.record_bytes_max = std::max(
        config.record_bytes_max, space.spec.page_bytes * std::int64_t{space.spec.record_pages}
    );
  if (config.record_bytes_max == 0) config.record_bytes_max = kRecordBytesMost;
  config.keyless = true;
  config.io = kvstore::StoreConfig::Io::kThreads;  // seldom and short: nothing to set up
  return kvstore::DiskStore::open(config, system_file_system(), system_clock());
}

// How an order went, beside its result.
struct Course {
  bool by_server = false;     // a running one did it, or was asked to
  std::optional<int> signal;  // that stopped the waiting
};

Result<std::int64_t> ask_server(
    const std::string& folder, const kvstore::Order& order, std::optional<int>& signal
) {
  SignalWatch signals = TRY(SignalWatch::open());  // so that the order is withdrawn
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  auto answer =
      kvstore::ask(folder, order, system_file_system(), system_clock(), [&](double waited_s) {
        if (is_terminal && waited_s > 1)
          fmt::print(stderr, "\rwaiting for the server that has it open: {:.0f} s", waited_s);
        signal = signals.wait(50);
        return !signal;
      });
  if (is_terminal) fmt::print(stderr, "\r\033[K");
  return answer;
}

// Bytes freed or erased.
Result<std::int64_t> carry_out(
    const std::string& folder, const kvstore::Order& order, const Limits& limits, Course& course
) {
  FileSystem& files = system_file_system();
  const kvstore::Survey before = TRY(kvstore::survey_store(folder, files, now_s()));
  auto store = open_for_orders(before, limits);
  course.by_server = !store && store.error().code == Code::kUnavailable;
  if (course.by_server && limits.are_given())
    return fail(
        Code::kUnavailable,
        "{}: a server has it open and keeps it within its own --kv-max-bytes and the quotas of its "
        "own key file, which `kill -HUP` reads again; leave the flag out to let that server "
        "collect now, or stop it first",
        folder
    );
  if (course.by_server) return ask_server(folder, order, course.signal);
  if (!store) return tl::unexpected<Error>(store.error());
  if (order.verb == kvstore::Order::Verb::kDropTenant) return (*store)->drop_tenant(order.tenant);
  TRY((*store)->collect());
  *store = nullptr;  // opening and closing give back as well: over the cap, unused ends
  const kvstore::Survey after = TRY(kvstore::survey_store(folder, files, now_s()));
  return std::max<std::int64_t>(0, before.status.bytes_used - after.status.bytes_used);
}

struct Done {
  std::string_view what;  // "freed", "erased"
  std::int64_t bytes = 0;
  bool by_server = false;
};

void print_done(const Options& options, const std::string& folder, const Done& done) {
  Table table;
  table.row("store", folder);
  table.row(done.what, fmt::format("{} ({} bytes)", size_text(done.bytes), done.bytes), done.bytes);
  table.row("done by", done.by_server ? "the server that has it open" : "this process");
  table.print(options.on("json"));
}

int stopped(int signal, const Error& error) {
  fmt::print(stderr, "stopped by signal {}: {}\n", signal, error.message);
  return 128 + signal;
}

Result<int> run_gc(const Options& options) {
  const std::string folder = TRY(store_folder(options));
  Course course;
  Limits limits{.bytes_max = options.integer("kv-max-bytes")};
  if (options.is_set("api-keys"))
    limits.quotas = kv_quotas(TRY(read_key_file(options.text("api-keys"))));
  const auto freed = carry_out(folder, {kvstore::Order::Verb::kCollect, {}}, limits, course);
  if (course.signal && !freed) return stopped(*course.signal, freed.error());
  print_done(options, folder, {"freed", TRY(freed), course.by_server});
  return kExitDone;
}

// A mistyped name must not look like an erased tenant. Who has a key but no record counts.
Result<> check_tenant(
    const kvstore::Survey& survey, const std::string& folder, const std::string& tenant
) {
  std::set<std::string> tenants;
  for (const kvstore::SpaceLine& space : survey.spaces) tenants.insert(space.spec.tenant);
  for (std::string& name : kvstore::tenants_with_keys(folder, system_file_system()))
    tenants.insert(std::move(name));
  if (tenants.contains(tenant)) return {};
  std::string names;
  std::size_t shown = 0;
  for (const std::string& name : tenants) {
    if (shown == kShownTenants) break;
    names += (shown++ == 0 ? "" : ", ") + tenant_text(name);
  }
  if (tenants.empty()) names = "none";
  if (shown < tenants.size()) names += fmt::format(" and {} more", tenants.size() - shown);
  return fail(
      Code::kNotFound,
      "{}: no tenant '{}' here; there are: {}{}",
      folder,
      tenant,
      names,
      survey.is_live ? "; POST /reset_prefix_cache empties the RAM of the server that has it open"
                     : ""
  );
}

// True: go on.
bool confirmed(
    const kvstore::Survey& survey, const std::string& folder, const std::string& tenant
) {
  std::int64_t records = 0, bytes = 0;
  for (const kvstore::TenantStatus& of : survey.status.tenants) {
    if (of.tenant != tenant) continue;
    records = of.records;
    bytes = of.bytes;
  }
  fmt::print(
      stderr,
      "{}: erase everything of tenant {} ({} records, {})? It cannot be undone. [y/N] ",
      folder,
      tenant_text(tenant),
      records,
      size_text(bytes)
  );
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Result<int> run_drop_tenant(const Options& options) {
  const std::string folder = TRY(store_folder(options));
  if (!options.is_set("tenant"))
    return fail_field(
        "tenant",
        "which one? `artery inspect {}` lists them; --tenant \"\" is that of a server without keys",
        folder
    );
  const std::string& tenant = options.text("tenant");
  const kvstore::Survey survey = TRY(kvstore::survey_store(folder, system_file_system(), now_s()));
  TRY(check_tenant(survey, folder, tenant));
  const bool asks = !options.on("yes") && isatty(STDIN_FILENO) == 1;
  if (asks && !confirmed(survey, folder, tenant)) {
    fmt::print(stderr, "nothing was done\n");
    return kExitFailed;
  }
  Course course;
  const auto erased = carry_out(folder, {kvstore::Order::Verb::kDropTenant, tenant}, {}, course);
  if (course.signal && !erased) return stopped(*course.signal, erased.error());
  print_done(options, folder, {"erased", TRY(erased), course.by_server});
  if (course.by_server)
    fmt::print(
        stderr,
        "the server has emptied its RAM cache too, but for pages that requests of {} are using "
        "now\n",
        tenant_text(tenant)
    );
  return kExitDone;
}

Flag dir_flag() {
  return {
      .name = "dir",
      .help = "the store's folder: what `artery serve --kv-dir` was given",
      .value_name = "DIR",
      .positional = true,
      .in_config = false,
  };
}

}  // namespace

Verb kv_verify_verb() {
  return {
      "kv verify",
      "read every record of a KV store and check it; exit code 3 when something is damaged",
      "artery kv verify ~/.cache/artery/kv\n"
      "artery kv verify ~/.cache/artery/kv --json | jq .damaged",
      {
          dir_flag(),
          {.name = "kv-encryption-key-file",
           .help =
               "of an encrypted store: also check that each record opens with its tenant's key; "
               "checksums need no key",
           .value_name = "FILE"},
          json_flag(),
      },
      run_verify,
  };
}

Verb kv_gc_verb() {
  return {
      "kv gc",
      "give back what has expired in a KV store, and what is over a cap or a quota",
      "artery kv gc ~/.cache/artery/kv\n"
      "artery kv gc ~/.cache/artery/kv --kv-max-bytes 20G\n"
      "artery kv gc ~/.cache/artery/kv --api-keys keys.toml",
      {
          dir_flag(),
          {.name = "kv-max-bytes",
           .kind = FlagKind::kBytes,
           .fallback = "0",
           .help = "shrink it to that: the oldest segments go, but for what was hit since or is "
                   "promised; 0: only what has expired. Not beside a running server, which has a "
                   "cap of its own",
           .value_name = "SIZE"},
          {.name = "api-keys",
           .help = "the server's key file: tenants give up what they have over its kv_quota, what "
                   "was used longest ago first. Not beside a running server, which reads its own",
           .value_name = "FILE"},
          json_flag(),
      },
      run_gc,
  };
}

Verb kv_drop_tenant_verb() {
  return {
      "kv drop-tenant",
      "erase all that a tenant has in a KV store, also beside a running server",
      "artery kv drop-tenant ~/.cache/artery/kv alice\n"
      "artery kv drop-tenant ~/.cache/artery/kv alice --yes",
      {
          dir_flag(),
          {.name = "tenant",
           .help = "as in the --api-keys file; --tenant \"\" is the one of a server without keys",
           .value_name = "TENANT",
           .positional = true,
           .in_config = false},
          {.name = "yes",
           .kind = FlagKind::kSwitch,
           .fallback = "false",
           .help = "do not ask on a terminal",
           .in_config = false},
          json_flag(),
      },
      run_drop_tenant,
  };
}

}  // namespace artery::cli
