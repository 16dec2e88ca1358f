#include "bench/kv_bench.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/crc32c.h"
#include "bench/kv_synthetic.h"
#include "engine/kv_pool.h"
#include "engine/prefix_cache.h"
#include "engine/record_io.h"
#include "kvstore/catalog.h"
#include "kvstore/folder_format.h"
#include "kvstore/raw_read.h"
#include "kvstore/record_format.h"

namespace artery::bench {
namespace {

using kvstore::DiskStore;
using kvstore::Offer;

constexpr int kTokensPerRecord = kKvBenchRecordPages * kPageTokens;
constexpr std::int64_t kRecordPayload = kKvBenchRecordPages * kKvBenchPageBytes;

// One group of 14,240 bytes a page.
model::KvGroup bench_group() {
  model::KvGroup group;
  group.geometry = {.layers = 1, .kv_heads = 1, .head_dim = 294, .type = tensor::KvType::kI16V8};
  CHECK(group.geometry.page_bytes() == kKvBenchPageBytes);
  return group;
}

// Made, and gone with everything in it.
class OwnFolder {
 public:
  explicit OwnFolder(const std::string& parent)
      : path_(std::filesystem::path(parent) / fmt::format("artery-bench-kv-{}", ::getpid())) {}
  ~OwnFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  std::string path(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

class Bench {
 public:
  Bench(
      const KvBenchConfig& config,
      FileSystem& files,
      const Clock& clock,
      const KvBenchProgress& told
  )
      : config_(config), files_(files), clock_(clock), told_(told), folder_(config.folder) {}

  Result<KvBenchReport> run() {
    out_.tokens = std::int64_t{config_.records} * kTokensPerRecord;
    out_.prefix_bytes = config_.records * kRecordPayload;
    make_text();
    measure_hash();
    TRY(go_on());
    measure_find();
    TRY(go_on());
    measure_crc();
    TRY(go_on());
    TRY(measure_ram());
    TRY(go_on());
    TRY(measure_disk());
    if (config_.open_bytes > 0) TRY(measure_open());
    return std::move(out_);
  }

 private:
  bool is_stopped() const { return config_.is_stopped && config_.is_stopped(); }
  Result<> go_on() const { return is_stopped() ? fail(Code::kCancelled, "stopped") : Result<>(); }

  // `work` returns the figure of one time; the first time warms up.
  template <typename Work>
  Spread repeat(const std::string& what, Work work) {
    std::vector<double> values;
    for (int i = 0; i <= config_.repetitions; ++i) {
      told_(what, i, config_.repetitions + 1);
      const double value = work();
      if (i > 0) values.push_back(value);
      if (is_stopped()) break;
    }
    return spread_of(std::move(values));
  }
  template <typename Work>
  double seconds_of(Work work) {
    const double start = clock_.seconds();
    work();
    return std::max(clock_.seconds() - start, 1e-9);
  }

  void make_text() {
    std::mt19937_64 random(7);
    ids_.resize(static_cast<std::size_t>(out_.tokens));
    for (TokenId& id : ids_) id = static_cast<TokenId>(random() % 129'280);
    root_ = chain_root("bench", "bench");
    keys_ = chain_keys(root_, ids_);
  }

  void measure_hash() {
    out_.hash_tokens_per_s = repeat("chain keys", [&] {
      const double seconds =
          seconds_of([&] { CHECK(chain_keys(root_, ids_).back() == keys_.back()); });
      return static_cast<double>(out_.tokens) / seconds;
    });
  }

  // Prompts in turn, each beside what the others left in the processor's caches.
  void measure_find() {
    told_("filling the index", 0, 1);
    constexpr int kPrompts = 16;
    std::vector<std::vector<ChainKey>> prompts = {keys_};
    std::vector<TokenId> other = ids_;
    for (int i = 1; i < kPrompts; ++i) {
      other[0] = i;
      prompts.push_back(chain_keys(root_, other));
    }
    const auto catalog = synthetic_catalog(root_, prompts, config_.index_records);
    kvstore::StoreStatus status;
    catalog->fill(status, kSyntheticNow);
    out_.index_records = status.records;
    out_.index_bytes = status.index_bytes;
    std::vector<double> micros;
    const int rounds = std::max(1, config_.repetitions);
    for (int round = 0; round < rounds; ++round) {
      told_("look-up", round, rounds);
      for (const auto& keys : prompts) {
        const double seconds = seconds_of([&] {
          CHECK(
              catalog->find(0, keys, kSyntheticNow).pages ==
              std::int64_t{config_.records} * kKvBenchRecordPages
          );
        });
        micros.push_back(seconds * 1e6);
      }
    }
    out_.find_us = spread_of(std::move(micros));
  }

  void measure_crc() {
    std::vector<std::byte> bytes(64 << 20, std::byte{0x5A});
    out_.crc_gb_per_s = repeat("checksums", [&] {
      std::uint32_t sum = 0;
      const double seconds = seconds_of([&] {
        for (std::size_t at = 0; at < bytes.size(); at += kRecordPayload / 4) {
          sum ^= crc32c(std::span(bytes).subspan(
              at, std::min<std::size_t>(kRecordPayload / 4, bytes.size() - at)
          ));
        }
      });
      bytes[0] = static_cast<std::byte>(sum);
      return static_cast<double>(bytes.size()) / seconds / 1e9;
    });
  }

  Result<> measure_ram() {
    const std::int64_t pages = out_.tokens / kPageTokens;
    pool_ = TRY(engine::KvPool::make({{bench_group()}}, pages));
    engine::PrefixCache cache(*pool_);
    std::mt19937_64 random(11);
    for (std::size_t page = 0; page < keys_.size(); ++page) {
      engine::PageRef mine = pool_->allocate();
      std::byte* at = pool_->kv()[0].base + mine.page() * kKvBenchPageBytes;
      for (std::int64_t i = 0; i < kKvBenchPageBytes; i += 8) {
        const std::uint64_t bits = random();
        std::copy_n(reinterpret_cast<const std::byte*>(&bits), 8, at + i);
      }
      pages_.push_back(mine.page());
      const auto ids = std::span<const TokenId>(ids_).subspan(page * kPageTokens, kPageTokens);
      cache.offer(keys_[page], page == 0 ? root_ : keys_[page - 1], ids, mine.page());
    }
    std::vector<std::byte> copy(static_cast<std::size_t>(out_.prefix_bytes));
    std::vector<double> copies;
    out_.ram_match_ms = repeat("prefix from RAM", [&] {
      engine::PageStore::Match found;
      const double start = clock_.seconds();
      found = cache.match(keys_, ids_);
      const double matched = clock_.seconds();
      std::vector<engine::PageRef> held;
      for (const PageId page : found.pages) held.push_back(engine::PageRef::adopt(*pool_, page));
      engine::gather_pages(*pool_, held, copy);
      copies.push_back((clock_.seconds() - matched) * 1e3);
      CHECK(std::ssize(held) == pages);
      return (matched - start) * 1e3;
    });
    copies.erase(copies.begin());
    out_.ram_copy_ms = spread_of(std::move(copies));
    return {};
  }

  kvstore::StoreConfig store_config(const std::string& folder) const {
    kvstore::StoreConfig config;
    config.folder = folder;
    config.bytes_max = std::max<std::int64_t>(
        std::int64_t{8} << 30, 2 * (config_.repetitions + 1) * out_.prefix_bytes
    );
    config.segment_bytes = std::int64_t{256} << 20;  // so that a prefix lies in one or two
    config.record_bytes_max = kRecordPayload;
    config.write_queue_s = 60;
    config.io = config_.io;
    return config;
  }
  kvstore::SpaceSpec spec() const {
    return {
        .identity = "artery bench kv",
        .tenant = "",
        .model = "bench",
        .page_bytes = kKvBenchPageBytes,
        .record_pages = kKvBenchRecordPages
    };
  }
  std::size_t end_page(int record) const {
    return static_cast<std::size_t>(record + 1) * kKvBenchRecordPages;
  }
  std::span<const TokenId> ids_of(int record) const {
    return std::span<const TokenId>(ids_).subspan(
        static_cast<std::size_t>(record) * kTokensPerRecord, kTokensPerRecord
    );
  }

  // Another prompt each time: what is known is not written again.
  Result<double> write_prefix(DiskStore& store, kvstore::SpaceId space, int round) {
    ids_[0] = round;
    keys_ = chain_keys(root_, ids_);
    const double start = clock_.seconds();
    for (int record = 0; record < config_.records; ++record) {
      TRY(go_on());
      kvstore::RecordFacts facts;
      facts.space = space;
      facts.ttl = kvstore::TtlClass::kHour;
      facts.key = keys_[end_page(record) - 1];
      facts.parent = record == 0 ? root_ : keys_[end_page(record - 1) - 1];
      facts.pages = kKvBenchRecordPages;
      const auto fill = [&](std::span<std::byte> payload) {
        for (int page = 0; page < kKvBenchRecordPages; ++page) {
          const PageId id =
              pages_[end_page(record) - kKvBenchRecordPages + static_cast<std::size_t>(page)];
          std::copy_n(
              pool_->kv()[0].base + id * kKvBenchPageBytes,
              kKvBenchPageBytes,
              payload.data() + page * kKvBenchPageBytes
          );
        }
      };
      // A full buffer refuses; an engine would try again after its next step.
      while (store.offer(facts, ids_of(record), fill) == Offer::kRefused) {
        if (clock_.seconds() - start > 120) {
          return fail(Code::kIo, "the store took no record within two minutes");
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    TRY(store.flush());
    return static_cast<double>(out_.prefix_bytes) / (clock_.seconds() - start) / 1e6;
  }

  // Reads, verifies and copies the prefix into pages, as the engine does.
  Result<double> load_prefix(DiskStore& store, kvstore::SpaceId space) {
    std::vector<kvstore::Wanted> wanted;
    for (int record = 0; record < config_.records; ++record) {
      kvstore::Wanted& one = wanted.emplace_back();
      one.key = keys_[end_page(record) - 1];
      one.pages = kKvBenchRecordPages;
      one.ids.assign(ids_of(record).begin(), ids_of(record).end());
    }
    std::mutex mutex;
    std::condition_variable news;
    bool ready = false;
    store.set_notify([&] {
      const std::lock_guard lock(mutex);
      ready = true;
      news.notify_one();
    });
    const std::int64_t patience = clock_.monotonic_ns() + 120'000'000'000;
    const double start = clock_.seconds();
    int came = 0;
    bool ended = false;
    const kvstore::LoadId load = store.load(space, std::move(wanted), patience);
    while (!ended && !is_stopped() && clock_.monotonic_ns() < patience + 1'000'000'000) {
      bool any = false;
      store.poll(8 << 20, [&](const kvstore::Piece& piece) {
        any = true;
        ended = ended || piece.is_last;
        if (piece.payload.empty()) return;
        take_piece(static_cast<int>(piece.index), piece.payload);
        ++came;
      });
      std::unique_lock lock(mutex);
      if (!any && !ended) news.wait_for(lock, std::chrono::seconds(1), [&] { return ready; });
      ready = false;
    }
    const double seconds = clock_.seconds() - start;
    store.set_notify({});
    if (is_stopped()) store.cancel(load);
    TRY(go_on());
    if (came != config_.records) {
      return fail(Code::kIo, "{} of {} records came back", came, config_.records);
    }
    return seconds * 1e3;
  }
  void take_piece(int record, std::span<const std::byte> payload) {
    for (int page = 0; page < kKvBenchRecordPages; ++page) {
      const auto at = static_cast<std::size_t>(page);
      engine::scatter_page(
          *pool_,
          pages_[end_page(record) - kKvBenchRecordPages + at],
          payload.subspan(at * kKvBenchPageBytes, kKvBenchPageBytes)
      );
    }
  }

  // As many bytes, from the first file that holds such records.
  Result<double> read_raw(const std::string& folder) {
    std::string path;
    for (const std::string& name : TRY(files_.list(folder))) {
      if (!kvstore::segment_of(name)) continue;
      path = folder + "/" + name;
      break;
    }
    kvstore::RawReadPlan plan;
    plan.bytes = config_.records * kvstore::record_bytes(kTokensPerRecord, kRecordPayload);
    const kvstore::RawRead read = TRY(kvstore::raw_read(files_, path, plan));
    if (read.bytes != plan.bytes) {
      return fail(
          Code::kIo, "{}: has only {} of {} bytes to compare with", path, read.bytes, plan.bytes
      );
    }
    return read.seconds * 1e3;
  }

  Result<> measure_disk() {
    const std::string folder = folder_.path("store");
    const auto store = TRY(DiskStore::open(store_config(folder), files_, clock_));
    const kvstore::SpaceId space = store->open_space(spec());
    std::vector<double> writes, loads, raws, ratios;
    for (int i = 0; i <= config_.repetitions; ++i) {
      told_("writing", i, config_.repetitions + 1);
      const double rate = TRY(write_prefix(*store, space, i));
      if (i > 0) writes.push_back(rate);
    }
    for (int i = 0; i <= config_.repetitions; ++i) {
      told_("prefix from the disk", i, config_.repetitions + 1);
      // Both orders in turn: what comes second may find the disk awake.
      double load = 0, raw = 0;
      if (i % 2 == 0) load = TRY(load_prefix(*store, space));
      raw = TRY(read_raw(folder));
      if (i % 2 == 1) load = TRY(load_prefix(*store, space));
      if (i == 0) continue;
      loads.push_back(load);
      raws.push_back(raw);
      ratios.push_back(load / raw);
    }
    const kvstore::StoreStatus status = store->status();
    out_.io = status.io;
    out_.write_amplification = status.write_amplification();
    out_.write_mb_per_s = spread_of(std::move(writes));
    out_.load_ms = spread_of(std::move(loads));
    out_.raw_ms = spread_of(std::move(raws));
    out_.load_over_raw = spread_of(std::move(ratios));
    return {};
  }

  Result<> measure_open() {
    const std::string folder = folder_.path("large");
    kvstore::StoreConfig config = store_config(folder);
    config.bytes_max = config_.open_bytes + (std::int64_t{4} << 30);
    {
      const auto store = TRY(DiskStore::open(config, files_, clock_));
      store->open_space(spec());
      TRY(store->flush());
    }
    told_("sparse segments", 0, 1);
    TRY(write_synthetic_segments(folder, spec(), config_.open_bytes, files_, clock_));
    out_.open_bytes = config_.open_bytes;
    std::vector<double> opens;
    for (int i = 0; i <= config_.repetitions; ++i) {
      told_("opening", i, config_.repetitions + 1);
      TRY(go_on());
      const double start = clock_.seconds();
      const auto store = TRY(DiskStore::open(config, files_, clock_));
      const double seconds = clock_.seconds() - start;
      if (i > 0) opens.push_back(seconds * 1e3);
      out_.open_records = store->status().records;
    }
    out_.open_ms = spread_of(std::move(opens));
    return {};
  }

  const KvBenchConfig& config_;
  FileSystem& files_;
  const Clock& clock_;
  const KvBenchProgress& told_;
  OwnFolder folder_;
  KvBenchReport out_;
  std::vector<TokenId> ids_;
  ChainKey root_{};
  std::vector<ChainKey> keys_;
  std::unique_ptr<engine::KvPool> pool_;
  std::vector<PageId> pages_;
};

}  // namespace

Result<KvBenchReport> bench_kv(
    const KvBenchConfig& config,
    FileSystem& files,
    const Clock& clock,
    const KvBenchProgress& progress
) {
  if (config.records < 1 || config.repetitions < 1) {
    return fail(Code::kInvalidArgument, "a prefix of no records, or measured no time");
  }
  return Bench(config, files, clock, progress).run();
}

}  // namespace artery::bench
