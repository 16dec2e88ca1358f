#pragma once
// Chains of keys, small calls and a small catalog for the catalog's tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/chain_key.h"
#include "kvstore/catalog.h"

namespace artery::kvstore {

class TestNoise {
 public:
  explicit TestNoise(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }

 private:
  std::uint64_t state_;
};

// Uniform and different for different numbers, as chain keys are.
inline ChainKey test_key(std::uint64_t number) {
  TestNoise noise(number);
  ChainKey out;
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const std::uint64_t word = noise.next();
    std::memcpy(out.data() + i, &word, 8);
  }
  return out;
}

struct TestChain {
  ChainKey root{};
  std::vector<ChainKey> keys;  // of pages

  // `shared` pages of `other`, then `pages` of its own.
  static TestChain after(
      const TestChain& other, std::int64_t shared, std::int64_t pages, std::uint64_t number
  ) {
    TestChain out{other.root, {other.keys.begin(), other.keys.begin() + shared}};
    for (std::int64_t i = 0; i < pages; ++i)
      out.keys.push_back(test_key(number * 1'000'003 + static_cast<std::uint64_t>(i) + 1));
    return out;
  }
  static TestChain make(std::int64_t pages, std::uint64_t number) {
    return after({test_key(0x100000000ULL), {}}, 0, pages, number);
  }
  // Facts of the record of pages [first, first + pages).
  RecordFacts facts(SpaceId space, std::int64_t first, std::int64_t pages, TtlClass ttl) const {
    RecordFacts out;
    out.space = space;
    out.ttl = ttl;
    out.key = keys[static_cast<std::size_t>(first + pages - 1)];
    out.parent = first == 0 ? root : keys[static_cast<std::size_t>(first - 1)];
    out.pages = static_cast<int>(pages);
    return out;
  }
};

namespace catalog_testing {

constexpr std::int64_t kDay = 24 * 3600;
constexpr std::int64_t kRecord = 16 * kBlock;
constexpr int kPages = 4;  // of a record here

class CatalogTest : public ::testing::Test {
 protected:
  void start(std::int64_t records_max, std::int64_t records_in_segment = 8) {
    // Header, records, footer.
    limits_.segment_bytes = records_in_segment * kRecord + 3 * kBlock;
    limits_.bytes_max = (records_max / records_in_segment) * limits_.segment_bytes;
    catalog_ = std::make_unique<Catalog>(limits_);
    catalog_->add_space(0, "", kPages);
    catalog_->add_space(1, "acme", kPages);
  }
  Catalog::Refusal write(const RecordFacts& facts, std::int64_t now) {
    const Catalog::Placed placed = catalog_->place(facts, kRecord, now);
    if (placed.refusal != Catalog::Refusal::kNone) return placed.refusal;
    if (placed.seal) catalog_->seal(*placed.seal, limits_.segment_bytes);
    catalog_->commit(facts.key, now);
    return placed.refusal;
  }
  // Whole records, then a tail where the chain does not end with one.
  int write(const TestChain& chain, SpaceId space, TtlClass ttl, std::int64_t now) {
    int written = 0;
    const auto n = static_cast<std::int64_t>(chain.keys.size());
    for (std::int64_t at = 0; at < n; at += kPages) {
      const RecordFacts facts = chain.facts(space, at, std::min<std::int64_t>(kPages, n - at), ttl);
      if (write(facts, now) == Catalog::Refusal::kNone) ++written;
    }
    return written;
  }
  Found find(const TestChain& chain, std::int64_t now, SpaceId space = 0) {
    return catalog_->find(space, chain.keys, now);
  }
  // As the owner does: copies what is to be kept, then drops. False: nothing can go.
  bool reclaim(std::int64_t now) {
    const std::optional<Catalog::Victim> victim = catalog_->victim(now);
    if (!victim) return false;
    for (const Entry& entry : victim->keep) {
      const Catalog::Placed placed = catalog_->place_copy(entry.facts.key, now);
      EXPECT_EQ(placed.refusal, Catalog::Refusal::kNone);
      if (placed.seal) catalog_->seal(*placed.seal, limits_.segment_bytes);
      catalog_->commit_copy(entry.facts.key, placed.place);
      ++copied_;
    }
    catalog_->drop_segment(victim->segment, MissReason::kEvicted);
    catalog_->check_integrity();
    return true;
  }

  CatalogLimits limits_;
  std::unique_ptr<Catalog> catalog_;
  int copied_ = 0;
};

}  // namespace catalog_testing
}  // namespace artery::kvstore
