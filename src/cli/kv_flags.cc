#include "cli/kv_flags.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "cli/key_file.h"
#include "cli/model_file.h"
#include "cli/report.h"
#include "engine/kv_pool.h"
#include "engine/window_link.h"
#include "kvstore/catalog.h"

namespace artery::cli {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kCapMax = 32 * kGiB;
constexpr std::int64_t kFloorMin = kGiB;
// A record in the index: its node and its cells in a table that is at least half full.
constexpr std::int64_t kIndexBytesPerRecord = 80;

Flag bytes_flag(std::string_view name, std::string_view help) {
  return {
      .name = name, .kind = FlagKind::kBytes, .fallback = "0", .help = help, .value_name = "SIZE"
  };
}

std::vector<Flag> window_flags() {
  using K = FlagKind;
  return {
      {.name = "kv-exact",
       .kind = K::kSwitch,
       .fallback = "false",
       .help = "refuse --swa-replay, wherever it is set; hits are exact without this flag too"},
      {.name = "swa-replay",
       .kind = K::kInteger,
       .fallback = "-1",
       .help =
           "rows run again before a hit whose sliding windows are gone; -1: as many as give the "
           "bits of a recomputation; fewer is faster and inexact (`artery eval --compare` says "
           "by how much), 128 is usual",
       .value_name = "N",
       .min = -1,
       .max = 1e9},
      {.name = "kv-windows",
       .kind = K::kChoice,
       .fallback = "ram",
       .help = "where windows of sliding-window layers are kept: in RAM only, or in the store too",
       .choices = "ram|store"},
      {.name = "kv-window-ttl",
       .kind = K::kNumber,
       .fallback = "180",
       .help = "seconds that they live in RAM after their last use",
       .value_name = "S",
       .min = 0,
       .max = 1e9},
  };
}

std::optional<kvstore::TtlClass> ttl_of(const std::string& text) {
  for (const kvstore::TtlClass ttl : kvstore::kAllTtlClasses) {
    if (kvstore::name(ttl) == text) return ttl;
  }
  return std::nullopt;
}

// The folder itself, or the nearest one above it that is there.
std::string existing_folder(const std::string& folder) {
  std::filesystem::path path = folder;
  std::error_code why;
  // Above a plain name there is nothing, which means here.
  while (!path.empty() && !std::filesystem::is_directory(path, why) && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path.empty() ? std::string(".") : path.string();
}

// Without following links; what goes away meanwhile counts as nothing.
std::int64_t bytes_in(const std::string& folder) {
  std::int64_t sum = 0;
  std::error_code why;
  std::filesystem::directory_iterator it(folder, why);
  for (; !why && it != std::filesystem::directory_iterator(); it.increment(why)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    const std::uintmax_t bytes = it->file_size(gone);
    if (!gone) sum += static_cast<std::int64_t>(bytes);
  }
  return sum;
}

std::string advice(const Error& error) {
  // Another server's folder, an encrypted one: the message says what to do.
  if (error.message.find("--kv-") != std::string::npos) return "this server runs without a store";
  return "this server runs without a store; --kv-dir names another folder, --kv-dir none turns the "
         "store off";
}

void log_opened(const kvstore::StoreStatus& status, double seconds) {
  std::int64_t tokens = 0;
  for (const kvstore::ClassStatus& one : status.classes) tokens += one.tokens;
  log_info(
      "kv-store folder={} cap={} used={} records={} tokens={} io=\"{}\" health={} seconds={:.3f}",
      status.folder,
      bytes_text(static_cast<double>(status.bytes_max)),
      bytes_text(static_cast<double>(status.bytes_used)),
      status.records,
      tokens,
      status.io,
      kvstore::name(status.health),
      seconds
  );
}

std::int64_t global_record_bytes(const model::KvLayout& layout) {
  return layout.record_pages * engine::KvPool::page_bytes(layout, model::KvKind::kGlobal);
}

}  // namespace

Flag kv_dir_flag() {
  return {
      .name = "kv-dir",
      .fallback = "auto",
      .help =
          "folder of the KV store, which keeps computed prefixes across restarts; auto: "
          "artery/kv under $XDG_CACHE_HOME or ~/.cache; none: no store",
      .value_name = "DIR",
  };
}

Flag kv_max_bytes_flag() {
  return bytes_flag(
      "kv-max-bytes",
      "most bytes of that folder; 0: a tenth of what is free on its disk, at most 32G"
  );
}

std::vector<Flag> kv_flags() {
  using K = FlagKind;
  std::vector<Flag> flags = {
      kv_dir_flag(),
      {.name = "kv-store",
       .kind = K::kSwitch,
       .fallback = "true",
       .help = "keep computed prefixes in the folder of --kv-dir",
       .negatable = true},
      kv_max_bytes_flag(),
      bytes_flag(
          "kv-free-floor",
          "nothing is written while less than this is free on its disk; 0: a twentieth of the "
          "disk, at least 1G"
      ),
      {.name = "kv-ttl",
       .kind = K::kChoice,
       .fallback = "auto",
       .help = "how long prefixes live after their last use, of requests without cache_ttl; auto: "
               "agents 72h, chats 7d, single questions 1h",
       .choices = "auto|10m|1h|72h|7d|pinned"},
      {.name = "kv-read-only",
       .kind = K::kSwitch,
       .fallback = "false",
       .help = "read the store and change nothing in it: beside a server that writes it"},
      {.name = "kv-encryption-key-file",
       .help = "file with 32 bytes, or 64 hexadecimal digits: the store is encrypted with a key a "
               "tenant, and these are kept under this one",
       .value_name = "FILE"},
      bytes_flag("kv-write-bytes-per-s", "most bytes written to the store a second; 0: no limit"),
      bytes_flag("kv-read-bytes-per-s", "most bytes read from the store a second; 0: no limit"),
      {.name = "kv-io",
       .kind = K::kChoice,
       .fallback = "auto",
       .help = "how the store reads and writes; auto: io_uring where the kernel allows it",
       .choices = "auto|uring|threads"},
  };
  for (Flag& flag : window_flags()) flags.push_back(flag);
  return flags;
}

Result<std::string> kv_folder(const Options& options) {
  const std::string& asked = options.text("kv-dir");
  if (asked.empty())
    return fail_field("--kv-dir", "is empty: name a folder, or `none` for no KV store");
  if (asked != "auto") return asked == "none" ? std::string() : asked;
  const std::string cache = cache_folder();
  return cache.empty() ? cache : cache + "/kv";
}

Result<KvWish> kv_wish(const Options& options) {
  KvWish wish;
  wish.ttl = ttl_of(options.text("kv-ttl"));
  wish.windows_in_store = options.text("kv-windows") == "store";
  wish.window_ttl_s = options.number("kv-window-ttl");
  wish.swa_replay = static_cast<int>(options.integer("swa-replay"));
  if (options.on("kv-exact") && wish.swa_replay >= 0)
    return fail_field(
        "--swa-replay", "--swa-replay {} and --kv-exact contradict each other", wish.swa_replay
    );
  kvstore::StoreConfig& store = wish.store;
  store.bytes_max = options.integer("kv-max-bytes");
  store.free_floor_bytes = options.integer("kv-free-floor");
  store.write_bytes_per_s = options.integer("kv-write-bytes-per-s");
  store.read_bytes_per_s = options.integer("kv-read-bytes-per-s");
  store.read_only = options.on("kv-read-only");
  store.encryption_key_file = options.text("kv-encryption-key-file");
  store.encrypt = !store.encryption_key_file.empty();
  const std::string& io = options.text("kv-io");
  using Io = kvstore::StoreConfig::Io;
  store.io = io == "uring" ? Io::kUring : io == "threads" ? Io::kThreads : Io::kAuto;
  wish.is_default = options.text("kv-dir") == "auto";
  store.folder = TRY(kv_folder(options));
  const bool caches = options.on("enable-prefix-caching");
  const bool named = !wish.is_default && wish.on();
  if (named && !options.on("kv-store"))
    return fail_field(
        "--kv-dir", "--kv-dir {} and --no-kv-store contradict each other", store.folder
    );
  if (named && !caches)
    return fail_field(
        "--kv-dir", "--kv-dir {} needs the prefix cache, which is turned off", store.folder
    );
  if (!options.on("kv-store") || !caches) store.folder.clear();
  if (!wish.on() && store.encrypt)
    return fail_field("--kv-encryption-key-file", "there is no KV store to encrypt");
  return wish;
}

std::map<std::string, std::int64_t> kv_quotas(const std::vector<server::ApiKey>& keys) {
  std::map<std::string, std::int64_t> quotas;
  for (const server::ApiKey& key : keys) {
    std::int64_t& quota = quotas[key.tenant];
    quota = std::max(quota, key.kv_quota_bytes);
  }
  return quotas;
}

std::int64_t kv_bytes_max(std::int64_t free_bytes, std::int64_t held_bytes) {
  return std::min((free_bytes + held_bytes) / 10, kCapMax);
}

std::int64_t kv_free_floor(std::int64_t disk_bytes) { return std::max(disk_bytes / 20, kFloorMin); }

void choose_sizes(kvstore::StoreConfig& config) {
  std::error_code why;
  const auto space = std::filesystem::space(existing_folder(config.folder), why);
  const auto bytes = [&](std::uintmax_t count) {
    return why ? 0 : static_cast<std::int64_t>(count);
  };
  if (config.bytes_max == 0)
    config.bytes_max = kv_bytes_max(bytes(space.available), bytes_in(config.folder));
  if (config.free_floor_bytes == 0) config.free_floor_bytes = kv_free_floor(bytes(space.capacity));
}

std::int64_t record_bytes_max(const model::KvLayout& layout) {
  return std::max(global_record_bytes(layout), engine::window_record_bytes(layout));
}

std::int64_t kv_memory_bytes(const kvstore::StoreConfig& config, const model::KvLayout& layout) {
  // Tail records are shorter: counted as if all were half as long.
  const std::int64_t record = std::max(global_record_bytes(layout) / 2, kvstore::kBlock);
  return config.buffer_bytes + config.bytes_max / record * kIndexBytesPerRecord;
}

Result<std::shared_ptr<kvstore::DiskStore>> open_kv_store(
    const KvWish& wish, const model::KvLayout& layout, FileSystem& files, const Clock& clock
) {
  using Store = std::shared_ptr<kvstore::DiskStore>;
  kvstore::StoreConfig config = wish.store;
  config.record_bytes_max = record_bytes_max(layout);
  if (config.encrypt) warn_of_readers("--kv-encryption-key-file", config.encryption_key_file);
  // Of a folder that cannot be made nothing can be chosen.
  const Result<> made =
      config.read_only || config.bytes_max > 0 ? Result<>() : files.make_folder(config.folder);
  choose_sizes(config);
  const double begin = clock.seconds();
  auto opened =
      made ? kvstore::DiskStore::open(config, files, clock)
           : Result<std::unique_ptr<kvstore::DiskStore>>(fail(
                 made.error().code, "{}: cannot be made: {}", config.folder, made.error().message
             ));
  if (opened) {
    Store store = opened.take();
    log_opened(store->status(), clock.seconds() - begin);
    return store;
  }
  std::string trouble = opened.error().message;  // mostly names the folder itself
  if (!trouble.starts_with(config.folder)) trouble = fmt::format("{}: {}", config.folder, trouble);
  if (wish.store.bytes_max == 0 && opened.error().code == Code::kInvalidArgument) {
    opened = fail(Code::kOutOfMemory, "{}", opened.error().message);
    trouble = fmt::format(
        "{}: no room on its disk: the cap is {}, a tenth of what is free there, and that is too "
        "small for this model; make room, name a folder on another disk, or give --kv-max-bytes",
        config.folder,
        bytes_text(static_cast<double>(config.bytes_max))
    );
  }
  // A size that was asked for is no default, whatever the folder is.
  const bool asked = wish.store.bytes_max > 0 && opened.error().code == Code::kInvalidArgument;
  if (!wish.is_default || asked)
    return fail(opened.error().code, "{} {}", wish.is_default ? "KV store" : "--kv-dir", trouble);
  log_warn("KV store {}; {}", trouble, advice(opened.error()));
  return Store();
}

}  // namespace artery::cli
