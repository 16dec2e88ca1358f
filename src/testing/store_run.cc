#include "testing/store_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/hash.h"

namespace artery::testing {
namespace {

using kvstore::Extent;
using kvstore::Found;
using kvstore::MissReason;
using kvstore::Offer;
using kvstore::Piece;
using kvstore::RecordFacts;
using kvstore::RecordKind;
using kvstore::RecordStore;
using kvstore::SpaceSpec;
using kvstore::TtlClass;
using kvstore::Wanted;

// Page sizes on both sides of a block, none of them a divisor.
constexpr std::array<std::int64_t, 3> kPageBytes = {360, 1'700, 4'608};
constexpr std::array<int, 3> kRecordPages = {8, 4, 2};
constexpr auto kPatience = std::chrono::seconds(60);

std::uint64_t word_of(const ChainKey& key, std::size_t index) {
  std::uint64_t head = 0;
  std::memcpy(&head, key.data(), sizeof head);
  return SeqRandom::mix(head + (index + 1) * 0x9E3779B97F4A7C15u);
}

TokenId token_of(std::uint64_t seed, std::size_t index) {
  return static_cast<TokenId>(SeqRandom::mix(seed + index) % 50'000);
}

ChainKey window_key(const ChainKey& boundary) {
  std::array<std::byte, 33> text{};
  std::memcpy(text.data(), boundary.data(), boundary.size());
  text[32] = std::byte{'w'};
  return sha256(text);
}

}  // namespace

void fill_payload(const ChainKey& key, std::span<std::byte> out) {
  for (std::size_t at = 0; at < out.size(); at += 8) {
    const std::uint64_t word = word_of(key, at / 8);
    std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, out.size() - at));
  }
}

bool is_payload_of(const ChainKey& key, std::span<const std::byte> payload) {
  std::vector<std::byte> right(payload.size());
  fill_payload(key, right);
  return std::ranges::equal(right, payload);
}

void StoreTally::add(const StoreTally& other) {
  wanted += other.wanted;
  hits += other.hits;
  wrong += other.wrong;
  unended += other.unended;
  silent += other.silent;
  for (std::size_t i = 0; i < misses.size(); ++i) misses[i] += other.misses[i];
}

std::string StoreTally::text() const {
  std::string out = fmt::format(
      "wanted {} hits {} wrong {} unended {} silent {}", wanted, hits, wrong, unended, silent
  );
  for (std::size_t i = 0; i < misses.size(); ++i) {
    if (misses[i] == 0) continue;
    out += fmt::format(" {} {}", kvstore::name(static_cast<MissReason>(i)), misses[i]);
  }
  return out;
}

StoreRun::StoreRun(std::uint64_t seed, SimClock& clock) : random_(seed), clock_(clock) {}

std::size_t StoreRun::spaces() { return kPageBytes.size(); }

SpaceSpec StoreRun::spec(std::size_t space) {
  return {
      .identity = fmt::format("{{\"weights\":\"toy {}\",\"numerics\":\"fast-2\"}}", space),
      .tenant = space == 2 ? "anna" : "",
      .model = "toy",
      .page_bytes = kPageBytes[space],
      .record_pages = kRecordPages[space],
  };
}

std::int64_t StoreRun::record_payload_max() {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < spaces(); ++i) most = std::max(most, kPageBytes[i] * kRecordPages[i]);
  return most;
}

void StoreRun::bind(RecordStore& store, const std::string& secret) {
  space_ids_.clear();
  roots_.clear();
  for (std::size_t i = 0; i < spaces(); ++i) {
    space_ids_.push_back(store.open_space(spec(i)));
    roots_.push_back(chain_root(secret, spec(i).identity + "\n" + spec(i).tenant));
  }
  for (Prefix& prefix : prefixes_) prefix.keys = chain_keys(roots_[prefix.space], prefix.ids);
}

ChainKey StoreRun::key_of(const Prefix& prefix, const Record& record) const {
  const auto last = static_cast<std::size_t>(record.extent.first_page + record.extent.pages) - 1;
  return record.kind == RecordKind::kWindow ? window_key(prefix.keys[last]) : prefix.keys[last];
}

void StoreRun::step(RecordStore& store) {
  const double dice = random_.unit();
  const bool any = !prefixes_.empty();
  const std::size_t pick = any ? random_.next() % prefixes_.size() : 0;
  if (dice < 0.25 || !any) {
    constexpr std::array kClasses = {TtlClass::kHour, TtlClass::kAgent, TtlClass::kChat};
    const std::size_t space = random_.next() % spaces();
    add(store, space, kClasses[random_.next() % kClasses.size()], random_.between(1, 20));
  } else if (dice < 0.5) {
    grow(store, prefixes_[pick], random_.between(1, 12));
  } else if (dice < 0.6) {
    offer_window(store, prefixes_[pick]);
  } else if (dice < 0.7) {
    const Prefix& prefix = prefixes_[pick];
    store.touch(
        space_ids_[prefix.space],
        prefix.keys,
        random_.between(1, std::ssize(prefix.keys)),
        TtlClass::kChat,
        0
    );
  } else if (dice < 0.85) {
    loads_.add(load(store, prefixes_[pick]));
  } else {
    clock_.advance(random_.chance(0.5) ? 0.3 : 1.2);
  }
}

std::size_t StoreRun::add(RecordStore& store, std::size_t space, TtlClass ttl, std::int64_t pages) {
  Prefix prefix;
  prefix.space = space;
  prefix.ttl = ttl;
  prefix.seed = random_.next();
  prefixes_.push_back(std::move(prefix));
  grow(store, prefixes_.back(), pages);
  return prefixes_.size() - 1;
}

void StoreRun::grow(RecordStore& store, Prefix& prefix, std::int64_t pages) {
  const std::int64_t before = std::ssize(prefix.keys);
  const std::int64_t after = before + pages;
  for (std::size_t i = prefix.ids.size(); i < static_cast<std::size_t>(after * kPageTokens); ++i)
    prefix.ids.push_back(token_of(prefix.seed, i));
  prefix.keys = chain_keys(roots_[prefix.space], prefix.ids);
  const int group = kRecordPages[prefix.space];
  // Whole records from the last group on that was not full, then the tail.
  for (std::int64_t page = before / group * group; page < after; page += group) {
    Record record;
    record.extent.first_page = page;
    record.extent.pages = static_cast<int>(std::min<std::int64_t>(group, after - page));
    prefix.records.push_back(record);
    offer(store, prefix, prefix.records.back());
  }
}

void StoreRun::offer_window(RecordStore& store, Prefix& prefix) {
  Record record;
  record.kind = RecordKind::kWindow;
  record.extent.pages =
      static_cast<int>(std::min<std::int64_t>(std::ssize(prefix.keys), kRecordPages[prefix.space]));
  record.extent.first_page = std::ssize(prefix.keys) - record.extent.pages;
  const auto known = std::ranges::find_if(prefix.records, [&](const Record& one) {
    return one.kind == record.kind && one.extent.first_page == record.extent.first_page &&
           one.extent.pages == record.extent.pages;
  });
  if (known != prefix.records.end()) return offer(store, prefix, *known);
  prefix.records.push_back(record);
  offer(store, prefix, prefix.records.back());
}

void StoreRun::offer(RecordStore& store, const Prefix& prefix, Record& record) {
  const auto first = static_cast<std::size_t>(record.extent.first_page);
  const auto pages = static_cast<std::size_t>(record.extent.pages);
  RecordFacts facts;
  facts.space = space_ids_[prefix.space];
  facts.kind = record.kind;
  facts.ttl = prefix.ttl;
  facts.key = key_of(prefix, record);
  facts.pages = record.extent.pages;
  std::span<const TokenId> ids = std::span(prefix.ids).subspan(first * kPageTokens);
  if (record.kind == RecordKind::kWindow) {
    facts.parent = prefix.keys[first + pages - 1];
    ids = ids.last(kPageTokens);
  } else {
    facts.parent = first == 0 ? roots_[prefix.space] : prefix.keys[first - 1];
    ids = ids.first(pages * kPageTokens);
  }
  // A full buffer refuses; the engine asks again later, too.
  for (int attempt = 0; attempt < 50; ++attempt) {
    const Offer answer =
        store.offer(facts, ids, [&](std::span<std::byte> out) { fill_payload(facts.key, out); });
    if (answer != Offer::kRefused) {
      taken_ += record.taken ? 0 : 1;
      record.taken = true;
      record.durable &= answer == Offer::kKnown;  // else it was given up, and begins anew
      return;
    }
    ++refused_;
    if (store.status().writes_queued == 0) return;  // not for want of a buffer
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void StoreRun::mark_durable() {
  for (Prefix& prefix : prefixes_) {
    for (Record& record : prefix.records) record.durable |= record.taken;
  }
}

template <typename Match>
std::int64_t StoreRun::expect(RecordStore& store, Match match) {
  std::int64_t count = 0;
  for (Prefix& prefix : prefixes_) {
    const auto space = space_ids_[prefix.space];
    const std::int64_t reach = store.find(space, prefix.keys).pages;
    for (Record& record : prefix.records) {
      record.expected = match(record) && store.contains(space, key_of(prefix, record));
      // What hangs on something that is gone cannot be found.
      if (record.kind == RecordKind::kGlobal)
        record.expected &= record.extent.first_page + record.extent.pages <= reach;
      count += record.expected ? 1 : 0;
    }
  }
  return count;
}

std::int64_t StoreRun::expect_durable(RecordStore& store) {
  return expect(store, [](const Record& record) { return record.durable; });
}

std::int64_t StoreRun::expect_all(RecordStore& store) {
  return expect(store, [](const Record& record) { return record.taken; });
}

void StoreRun::load_records(
    RecordStore& store,
    const Prefix& prefix,
    const std::vector<const Record*>& records,
    StoreTally& tally,
    std::vector<const Record*>& came
) {
  if (records.empty()) return;
  std::vector<Wanted> wanted;
  for (const Record* record : records) {
    const auto first = static_cast<std::size_t>(record->extent.first_page) * kPageTokens;
    const auto count = static_cast<std::size_t>(record->extent.pages) * kPageTokens;
    std::span<const TokenId> ids = std::span(prefix.ids).subspan(first, count);
    if (record->kind == RecordKind::kWindow) ids = ids.last(kPageTokens);
    wanted.push_back(
        {key_of(prefix, *record), record->kind, record->extent.pages, {ids.begin(), ids.end()}}
    );
  }
  tally.wanted += std::ssize(records);
  const std::int64_t page_bytes = kPageBytes[prefix.space];
  const std::vector<Wanted> copy = wanted;
  const auto id = store.load(
      space_ids_[prefix.space], std::move(wanted), clock_.monotonic_ns() + 20'000'000'000
  );
  std::size_t next = 0;
  bool ended = false;
  MissReason why = MissReason::kNone;
  const auto take = [&](const Piece& piece) {
    if (piece.load != id) return;
    ended |= piece.is_last;
    if (piece.is_last) why = piece.why;
    if (piece.payload.empty()) return;
    const bool in_order = piece.index == next && next < copy.size();
    if (!in_order) ++tally.unended;
    if (!in_order) return;
    const bool is_whole =
        static_cast<std::int64_t>(piece.payload.size()) == page_bytes * copy[next].pages;
    const bool is_right = is_whole && is_payload_of(copy[next].key, piece.payload);
    ++(is_right ? tally.hits : tally.wrong);
    if (is_right) came.push_back(records[next]);
    ++next;
  };
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!ended && std::chrono::steady_clock::now() < until) {
    store.poll(1 << 20, take);
    if (!ended) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!ended) ++tally.unended;
  if (!ended) store.cancel(id);
  if (next == copy.size()) return;
  const std::int64_t rest = std::ssize(copy) - static_cast<std::int64_t>(next);
  tally.misses[static_cast<std::size_t>(why)] += rest;
  if (why == MissReason::kNone) tally.silent += rest;
}

void StoreRun::load_prefix(
    RecordStore& store, const Prefix& prefix, StoreTally& tally, std::vector<const Record*>& came
) {
  const Found found = store.find(space_ids_[prefix.space], prefix.keys);
  std::vector<const Record*> records;
  for (const Extent& extent : found.extents) {
    const auto at = std::ranges::find_if(prefix.records, [&](const Record& record) {
      return record.kind == RecordKind::kGlobal && record.extent.first_page == extent.first_page &&
             record.extent.pages == extent.pages;
    });
    if (at == prefix.records.end()) {
      ++tally.wrong;  // never offered
      return;
    }
    records.push_back(&*at);
  }
  if (found.pages < std::ssize(prefix.keys)) {
    ++tally.misses[static_cast<std::size_t>(found.miss)];
    if (found.miss == MissReason::kNone) ++tally.silent;
  }
  load_records(store, prefix, records, tally, came);
}

StoreTally StoreRun::load(RecordStore& store, const Prefix& prefix) {
  StoreTally tally;
  std::vector<const Record*> came;
  load_prefix(store, prefix, tally, came);
  return tally;
}

std::int64_t StoreRun::check(RecordStore& store, StoreTally& tally) {
  std::int64_t expected = 0;
  for (const Prefix& prefix : prefixes_) {
    std::vector<const Record*> came;
    load_prefix(store, prefix, tally, came);
    for (const Record& record : prefix.records) {
      if (record.kind == RecordKind::kWindow) {
        if (store.contains(space_ids_[prefix.space], key_of(prefix, record)))
          load_records(store, prefix, {&record}, tally, came);
        expected += record.expected && std::ranges::count(came, &record) > 0 ? 1 : 0;
        continue;
      }
      // A tail that a longer record has overgrown need not be read; its pages came.
      const bool covered = std::ranges::any_of(came, [&](const Record* one) {
        return one->kind == RecordKind::kGlobal &&
               one->extent.first_page <= record.extent.first_page &&
               one->extent.first_page + one->extent.pages >=
                   record.extent.first_page + record.extent.pages;
      });
      expected += record.expected && covered ? 1 : 0;
    }
  }
  return expected;
}

std::string StoreRun::digest() const {
  std::string text;
  for (const Prefix& prefix : prefixes_) {
    text += fmt::format("{} {}:", prefix.space, prefix.seed);
    for (const Record& record : prefix.records)
      text += fmt::format(" {}+{}", record.extent.first_page, record.extent.pages);
    text += "\n";
  }
  return hex(sha256(std::as_bytes(std::span(text))));
}

}  // namespace artery::testing
