#include "sim/cache_sim.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kvstore/catalog.h"
#include "kvstore/index.h"
#include "kvstore/record_format.h"
#include "sim/lru_twin.h"
#include "sim/seeded.h"

namespace artery::sim {
namespace {

using kvstore::Catalog;
using kvstore::Key16;
using kvstore::MissReason;
using kvstore::TtlClass;

constexpr std::int64_t kEpochS = 1'700'000'000;  // when virtual time begins
constexpr std::int64_t kCollectS = 60;           // virtual seconds between looks for dead segments
constexpr std::int64_t kRecordTokens = 256;
constexpr std::int64_t kUnlimited = std::int64_t{1} << 50;
constexpr std::uint64_t kProgressRequests = 64;
// As DiskStore wants them: one that is written, one that copies go to, one to be given up.
constexpr std::int64_t kSegmentsLeast = 3;

kvstore::CatalogLimits limits_of(const CacheSimConfig& config, std::int64_t record_bytes) {
  kvstore::CatalogLimits out;
  out.bytes_max = config.capacity_bytes > 0 ? config.capacity_bytes : kUnlimited;
  out.segment_bytes = config.segment_bytes > 0
                          ? config.segment_bytes
                          : kvstore::segment_bytes_for(out.bytes_max, record_bytes);
  return out;
}

// Below that, nothing would ever be stored.
Result<> check_capacity(const CacheSimConfig& config, std::int64_t record_bytes) {
  const std::int64_t segment = limits_of(config, record_bytes).segment_bytes;
  if (config.capacity_bytes == 0 || config.capacity_bytes >= kSegmentsLeast * segment) return {};
  return fail_field(
      "capacity",
      "{} bytes are too few: a store works in segments, here of {} bytes for records of {}, and "
      "needs room for {} of them; raise it to {} or more{}",
      config.capacity_bytes,
      segment,
      record_bytes,
      kSegmentsLeast,
      kSegmentsLeast * segment,
      config.segment_bytes > 0 ? ", or lower --segment-bytes" : ""
  );
}

// Chain keys of a request's blocks: each is of all ids up to it, and of the root.
class Chain {
 public:
  void build(const CacheRequest& request) {
    keys_.resize(static_cast<std::size_t>(request.blocks));
    std::uint64_t state = mix(request.root + kOdd);
    Key16* out = keys_.data();
    for (const Run& run : request.runs)
      for (std::uint64_t id = run.first; id != run.first + run.count; ++id) {
        state = mix(state * kOdd + id);
        *out++ = {state, state * kOther};
      }
    root_ = {mix(request.root + 7), ~std::uint64_t{0}};
  }
  const std::vector<Key16>& blocks() const { return keys_; }
  const Key16& root() const { return root_; }
  // Of whole records.
  void records(std::int64_t blocks_each, std::vector<Key16>& out) const {
    out.clear();
    const auto step = static_cast<std::size_t>(blocks_each);
    for (std::size_t end = step; end <= keys_.size(); end += step) out.push_back(keys_[end - 1]);
  }

 private:
  static constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ULL, kOther = 0xD6E8FEB86659FD93ULL;
  std::vector<Key16> keys_;
  Key16 root_;
};

// The store of a run: the catalog, and the I/O that it asks for, which takes no time.
class SegmentsRun {
 public:
  SegmentsRun(const CacheTrace& trace, const CacheSimConfig& config, std::int64_t record_tokens)
      : trace_(trace),
        config_(config),
        record_blocks_(record_tokens / trace.block_tokens),
        catalog_(limits_of(config, record_disk_bytes(record_tokens, config.bytes_per_token))) {
    result_.segment_bytes =
        limits_of(config, record_disk_bytes(record_tokens, config.bytes_per_token)).segment_bytes;
    catalog_.add_space(0, "", static_cast<int>(record_blocks_));
  }

  void request(const CacheRequest& request) {
    now_ = kEpochS + static_cast<std::int64_t>(request.time_s);
    if (now_ >= collect_at_) collect();
    chain_.build(request);
    keys_.resize(std::max(keys_.size(), chain_.blocks().size()));
    for (std::size_t i = 0; i < chain_.blocks().size(); ++i)
      std::memcpy(keys_[i].data(), &chain_.blocks()[i], sizeof(Key16));
    const std::span<const ChainKey> keys(keys_.data(), chain_.blocks().size());
    const kvstore::Found found = catalog_.find(0, keys, now_);
    const TtlClass ttl = class_of(found);
    count(request, found);
    catalog_.touch(0, keys, found.pages, ttl, 0, now_);
    write(keys, found, ttl);
    while (catalog_.pressure() > 0 && reclaim()) {
    }
  }

  CacheSimResult done() {
    kvstore::StoreStatus status;
    catalog_.fill(status, now_);
    for (const kvstore::ClassStatus& of : status.classes) result_.records_evicted += of.evicted;
    return result_;
  }

 private:
  // By what can be seen of a request (design.md section 5, classes).
  TtlClass class_of(const kvstore::Found& found) const {
    if (config_.ttl) return *config_.ttl;
    if (trace_.is_agents) return TtlClass::kAgent;
    return found.pages > record_blocks_ ? TtlClass::kChat : TtlClass::kHour;
  }

  void count(const CacheRequest& request, const kvstore::Found& found) {
    const std::int64_t hit = std::min(found.pages * trace_.block_tokens, request.input_tokens);
    ++result_.requests;
    result_.input_tokens += request.input_tokens;
    result_.hit_tokens += hit;
    MissReason why = found.miss;
    // What is left of a block has no id, so no key.
    if (why == MissReason::kNone && hit < request.input_tokens) why = MissReason::kBoundary;
    if (request.blocks < record_blocks_ && hit == 0) why = MissReason::kShort;
    if (hit < request.input_tokens) {
      ++result_.missed[static_cast<std::size_t>(why)];
      result_.missed_tokens[static_cast<std::size_t>(why)] += request.input_tokens - hit;
    } else {
      ++result_.missed[static_cast<std::size_t>(MissReason::kNone)];
    }
  }

  void write(std::span<const ChainKey> keys, const kvstore::Found& found, TtlClass ttl) {
    const auto n = static_cast<std::int64_t>(keys.size());
    for (std::int64_t at = found.pages / record_blocks_ * record_blocks_; at < n;) {
      const std::int64_t pages = std::min(record_blocks_, n - at);
      if (pages < record_blocks_ && !config_.tails) return;
      kvstore::RecordFacts facts;
      facts.ttl = ttl;
      facts.key = keys[static_cast<std::size_t>(at + pages - 1)];
      if (at > 0)
        facts.parent = keys[static_cast<std::size_t>(at - 1)];
      else
        std::memcpy(facts.parent.data(), &chain_.root(), sizeof(Key16));
      facts.pages = static_cast<int>(pages);
      if (!write(facts)) return;
      at += pages;
    }
  }

  // False: refused, and what follows would hang on nothing.
  bool write(const kvstore::RecordFacts& facts) {
    const std::int64_t bytes =
        record_disk_bytes(facts.pages * trace_.block_tokens, config_.bytes_per_token);
    Catalog::Placed placed = catalog_.place(facts, bytes, now_);
    while (placed.refusal == Catalog::Refusal::kRoom && reclaim())
      placed = catalog_.place(facts, bytes, now_);
    if (placed.refusal == Catalog::Refusal::kKnown) return true;
    if (placed.refusal != Catalog::Refusal::kNone) {
      ++result_.records_refused;
      return false;
    }
    opened(placed);
    catalog_.commit(facts.key, now_);
    ++result_.records_written;
    result_.bytes_written += bytes;
    return true;
  }

  void opened(const Catalog::Placed& placed) {
    if (placed.seal) catalog_.seal(*placed.seal, result_.segment_bytes);
    if (!placed.opens_segment) return;
    ++segments_;
    result_.peak_bytes = std::max(result_.peak_bytes, segments_ * result_.segment_bytes);
  }

  bool reclaim() {
    const std::optional<Catalog::Victim> victim = catalog_.victim(now_);
    if (!victim) return false;
    for (const kvstore::Entry& entry : victim->keep) {
      const Catalog::Placed placed = catalog_.place_copy(entry.facts.key, now_);
      if (placed.refusal != Catalog::Refusal::kNone) continue;
      opened(placed);
      catalog_.commit_copy(entry.facts.key, placed.place);
      ++result_.records_copied;
      result_.bytes_copied += placed.place.bytes;
    }
    catalog_.drop_segment(victim->segment, MissReason::kEvicted);
    --segments_;
    ++result_.segments_reclaimed;
    return true;
  }

  void collect() {
    for (const kvstore::SegmentId id : catalog_.dead_segments(now_)) {
      catalog_.drop_segment(id, MissReason::kExpired);
      --segments_;
      ++result_.segments_expired;
    }
    collect_at_ = now_ + kCollectS;
  }

  const CacheTrace& trace_;
  const CacheSimConfig& config_;
  CacheSimResult result_;
  std::int64_t record_blocks_;
  Catalog catalog_;
  Chain chain_;
  std::vector<ChainKey> keys_;
  std::int64_t now_ = 0, collect_at_ = 0, segments_ = 0;
};

class LruRun {
 public:
  LruRun(const CacheTrace& trace, const CacheSimConfig& config, std::int64_t record_tokens)
      : trace_(trace),
        record_tokens_(record_tokens),
        bytes_(record_disk_bytes(record_tokens, config.bytes_per_token)),
        twin_(
            config.capacity_bytes > 0 ? config.capacity_bytes / bytes_ : kUnlimited,
            kvstore::ttl_seconds(
                config.ttl.value_or(trace.is_agents ? TtlClass::kAgent : TtlClass::kChat)
            )
        ) {}

  void request(const CacheRequest& request) {
    const auto now = kEpochS + static_cast<std::int64_t>(request.time_s);
    chain_.build(request);
    chain_.records(record_tokens_ / trace_.block_tokens, records_);
    const std::int64_t found = twin_.find(records_, now);
    result_.hit_tokens += std::min(found * record_tokens_, request.input_tokens);
    ++result_.requests;
    result_.input_tokens += request.input_tokens;
    result_.records_written += twin_.use(records_, now);
    result_.peak_bytes = std::max(result_.peak_bytes, twin_.records() * bytes_);
  }

  CacheSimResult done() {
    result_.bytes_written = result_.records_written * bytes_;
    result_.records_evicted = twin_.evicted();
    return result_;
  }

 private:
  const CacheTrace& trace_;
  std::int64_t record_tokens_, bytes_;
  CacheSimResult result_;
  LruTwin twin_;
  Chain chain_;
  std::vector<Key16> records_;
};

template <typename Store>
CacheSimResult run_all(
    Store run,
    const CacheTrace& trace,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress
) {
  std::uint64_t done = 0;
  for (const CacheRequest& request : trace.requests) {
    run.request(request);
    if (progress && ++done % kProgressRequests == 0) progress(done, trace.requests.size());
  }
  return run.done();
}

}  // namespace

std::int64_t record_disk_bytes(std::int64_t tokens, std::int64_t bytes_per_token) {
  // record_format.h; its limit of 896 ids does not hold for the coarse blocks of some traces.
  const std::int64_t bytes =
      kvstore::payload_offset(static_cast<int>(tokens)) + tokens * bytes_per_token;
  return (bytes + kvstore::kBlock - 1) / kvstore::kBlock * kvstore::kBlock;
}

Result<std::int64_t> record_tokens(const CacheTrace& trace, const CacheSimConfig& config) {
  const std::int64_t block = trace.block_tokens;
  const std::int64_t tokens =
      config.record_tokens > 0 ? config.record_tokens : std::max(kRecordTokens, block);
  if (tokens % block != 0 || tokens / block > 255)
    return fail_field(
        "record-tokens",
        "{}: must be 1 to 255 times {}, the block of this {} trace",
        tokens,
        block,
        trace.format
    );
  return tokens;
}

Result<std::int64_t> distinct_bytes(const CacheTrace& trace, const CacheSimConfig& config) {
  const std::int64_t tokens = TRY(record_tokens(trace, config));
  kvstore::Index seen;
  Chain chain;
  std::vector<Key16> records;
  for (const CacheRequest& request : trace.requests) {
    chain.build(request);
    chain.records(tokens / trace.block_tokens, records);
    for (std::size_t i = records.size(); i-- > 0;) {  // what stands before a known one is known
      if (seen.find(records[i]) != kvstore::kNil) break;
      seen.insert(records[i]);
    }
  }
  return seen.nodes() * record_disk_bytes(tokens, config.bytes_per_token);
}

Result<CacheSimResult> simulate_cache(
    const CacheTrace& trace,
    const CacheSimConfig& config,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress
) {
  const std::int64_t tokens = TRY(record_tokens(trace, config));
  const std::int64_t record = record_disk_bytes(tokens, config.bytes_per_token);
  if (config.policy == Policy::kLru) return run_all(LruRun(trace, config, tokens), trace, progress);
  const std::int64_t segment = config.segment_bytes;
  if (segment != 0 && (segment % kvstore::kBlock != 0 || segment < record + 3 * kvstore::kBlock))
    return fail_field(
        "segment-bytes",
        "{}: must be a multiple of {} and hold a record of {} bytes",
        segment,
        kvstore::kBlock,
        record
    );
  TRY(check_capacity(config, record));
  return run_all(SegmentsRun(trace, config, tokens), trace, progress);
}

}  // namespace artery::sim
