// Random operations on a catalog beside a plain map of what must be in it.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "kvstore/catalog.h"
#include "kvstore/catalog_testing.h"

namespace artery::kvstore {
namespace {

constexpr int kPages = 4;
constexpr std::int64_t kRecord = 4 * kBlock;
constexpr std::int64_t kQuota = 60 * kRecord;

struct Known {
  enum class State { kPlaced, kDoomed, kLive } state = State::kPlaced;
  RecordFacts facts;
  SegmentId segment = 0;
  std::int64_t last_use = 0;
};

// Does the same to both and compares after each step.
class Twin {
 public:
  explicit Twin(std::uint64_t seed) : noise_(seed) {
    limits_.segment_bytes = 16 * kRecord + 4 * kBlock;
    limits_.bytes_max = 40 * limits_.segment_bytes;
    catalog_ = std::make_unique<Catalog>(limits_);
    for (SpaceId space = 0; space < 3; ++space) catalog_->add_space(space, tenant(space), kPages);
    catalog_->set_quota(tenant(2), kQuota);
    for (std::uint64_t i = 0; i < 30; ++i) {
      chains_.push_back(TestChain::make(1 + noise_.below(40), ++numbers_));
      spaces_.push_back(static_cast<SpaceId>(i % 3));
    }
  }

  void step() {
    advance();
    const std::int64_t what = noise_.below(100);
    if (what < 45) return write();
    if (what < 65) return touch();
    if (what < 72) return finish();
    if (what < 80) return grow();
    if (what < 86) return reclaim();
    if (what < 90) return expire();
    if (what < 92) return erase();
    if (what < 93) return drop_segment();
    if (what < 97) return promise();
    compare();
  }
  void compare() {
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      const TestChain& chain = chains_[i];
      const Found found = catalog_->find(spaces_[i], chain.keys, now_);
      std::int64_t pages = 0;
      while (pages + kPages <= size(chain) && is_alive(chain, pages, kPages)) pages += kPages;
      const std::int64_t most = std::min<std::int64_t>(kPages - 1, size(chain) - pages);
      for (const auto& [first, tail] : tails(chain, pages, most)) pages = first + tail;
      ASSERT_EQ(found.pages, pages) << "chain " << i << " at " << now_;
      ASSERT_EQ(found.miss == MissReason::kNone, pages == size(chain));
    }
    StoreStatus status;
    catalog_->fill(status, now_);
    ASSERT_LE(status.bytes_used, limits_.bytes_max);
    ASSERT_LE(status.tenants.at(1).bytes, kQuota);
    std::int64_t live = 0;
    for (const auto& [key, known] : known_) live += known.state == Known::State::kLive ? 1 : 0;
    ASSERT_EQ(status.records, live);
    catalog_->check_integrity();
  }
  std::int64_t reclaims() const { return reclaims_; }
  std::int64_t kept() const { return kept_; }
  std::int64_t refused() const { return refused_; }

  // A catalog restored from this one's records finds the same.
  void reopen() {
    while (!writing_.empty()) finish();
    auto next = std::make_unique<Catalog>(limits_);
    for (SpaceId space = 0; space < 3; ++space) next->add_space(space, tenant(space), kPages);
    std::vector<Entry> entries;
    for (const SegmentId id : catalog_->segments()) {
      next->restore_segment(id, TtlClass::kHour, limits_.segment_bytes, true);
      for (const Entry& entry : catalog_->records_of(id)) entries.push_back(entry);
    }
    for (std::size_t i = entries.size(); i > 1; --i)
      std::swap(
          entries[i - 1],
          entries[static_cast<std::size_t>(noise_.below(static_cast<std::int64_t>(i)))]
      );
    for (const Entry& entry : entries) next->restore(entry, now_);
    next->end_restore(now_);
    next->set_quota(tenant(2), kQuota);
    while (next->enforce_quotas(now_)) {
    }
    for (auto& [key, known] : known_) known.last_use = std::min(known.last_use, now_);
    catalog_ = std::move(next);
    compare();
  }

 private:
  static std::string tenant(SpaceId space) { return space == 2 ? "acme" : ""; }
  static std::int64_t size(const TestChain& chain) {
    return static_cast<std::int64_t>(chain.keys.size());
  }
  std::int64_t any_chain() { return noise_.below(static_cast<std::int64_t>(chains_.size())); }
  bool is_alive(const Known& known) const {
    return known.facts.guaranteed_until_s >= now_ ||
           now_ - known.last_use <= ttl_seconds(known.facts.ttl);
  }
  bool is_alive(const TestChain& chain, std::int64_t first, int pages) const {
    const auto it = known_.find(chain.keys[static_cast<std::size_t>(first + pages - 1)]);
    return it != known_.end() && it->second.state == Known::State::kLive &&
           it->second.facts.pages == pages && is_alive(it->second);
  }
  // Begin and pages of the tails from `begin` on, one hanging on the other, that lead furthest.
  using Tails = std::vector<std::pair<std::int64_t, int>>;
  Tails tails(const TestChain& chain, std::int64_t begin, std::int64_t most) const {
    Tails best;
    const auto end_of = [&](const Tails& some) {
      return some.empty() ? begin : some.back().first + some.back().second;
    };
    for (std::int64_t pages = 1; pages <= most; ++pages) {
      if (!is_alive(chain, begin, static_cast<int>(pages))) continue;
      Tails some = {{begin, static_cast<int>(pages)}};
      const Tails more = tails(chain, begin + pages, most - pages);
      some.insert(some.end(), more.begin(), more.end());
      if (end_of(some) > end_of(best)) best = std::move(some);
    }
    return best;
  }
  void advance() {
    const std::int64_t kind = noise_.below(1000);
    if (kind < 500) now_ += noise_.below(20);
    if (kind >= 990 && kind < 995) now_ += noise_.below(1200);
    if (kind == 996) now_ -= noise_.below(5000);
    if (kind == 997) now_ += noise_.below(100'000);
    now_ = std::max<std::int64_t>(now_, 1);
  }

  std::set<ChainKey> below(const ChainKey& key) const {
    std::set<ChainKey> out;
    std::vector<ChainKey> next{key};
    while (!next.empty()) {
      const ChainKey at = next.back();
      next.pop_back();
      if (!out.insert(at).second) continue;
      for (const auto& [child, known] : known_)
        if (known.facts.parent == at) next.push_back(child);
    }
    return out;
  }
  void drop(const ChainKey& key) {
    for (const ChainKey& gone : below(key)) {
      const auto it = known_.find(gone);
      if (it == known_.end()) continue;
      if (it->second.state == Known::State::kLive)
        known_.erase(it);
      else
        it->second.state = Known::State::kDoomed;
    }
  }
  // What the catalog has dropped on its own may have been dropped: `may_go` says of what.
  // With what hangs on it, or, where a record makes place for itself, alone.
  template <typename MayGo>
  void follow(bool with_descendants, MayGo may_go) {
    std::vector<ChainKey> gone;
    for (const auto& [key, known] : known_)
      if (known.state == Known::State::kLive && !catalog_->look_up(key)) {
        ASSERT_TRUE(may_go(known)) << "lost without a reason at " << now_;
        gone.push_back(key);
      }
    if (with_descendants)
      for (const ChainKey& key : gone)
        for (const ChainKey& child : below(key))
          if (const auto it = known_.find(child);
              it != known_.end() && it->second.state == Known::State::kPlaced)
            it->second.state = Known::State::kDoomed;
    for (const ChainKey& key : gone) known_.erase(key);
  }
  bool is_promised(const Known& known) const { return known.facts.guaranteed_until_s >= now_; }
  // Itself or something it hangs on.
  bool is_expired(const Known& known) const {
    const Known* at = &known;
    for (;;) {
      if (!is_alive(*at)) return true;
      const auto up = known_.find(at->facts.parent);
      if (up == known_.end()) return false;
      at = &up->second;
    }
  }

  void write() {
    const std::int64_t i = any_chain();
    const TestChain& chain = chains_[static_cast<std::size_t>(i)];
    const SpaceId space = spaces_[static_cast<std::size_t>(i)];
    const auto ttl = kAllTtlClasses[static_cast<std::size_t>(noise_.below(4))];
    std::int64_t first = 0;
    while (first + kPages <= size(chain) &&
           known_.contains(chain.keys[static_cast<std::size_t>(first + kPages - 1)]) &&
           noise_.below(30) != 0)
      first += kPages;
    // Half of the tails go on from one that is there.
    for (int tail = 1; tail < kPages && first + tail < size(chain); ++tail)
      if (is_alive(chain, first, tail) && size(chain) - first < kPages && noise_.below(2) == 0) {
        first += tail;
        break;
      }
    const std::int64_t left = size(chain) - first;
    if (left == 0) return;
    const std::int64_t pages = left < kPages ? 1 + noise_.below(left) : kPages;
    place(chain.facts(space, first, pages, ttl));
  }
  void place(RecordFacts facts) {
    if (noise_.below(20) == 0) facts.guaranteed_until_s = promised_until_;
    const auto before = known_.find(facts.key);
    const bool was_known = before != known_.end() && (before->second.state != Known::State::kLive ||
                                                      is_alive(before->second));
    const bool was_doomed = was_known && before->second.state == Known::State::kDoomed;
    const Catalog::Placed placed = catalog_->place(facts, kRecord, now_);
    // One that has expired makes place for itself, and a quota costs its tenant leaves.
    const auto there = leaves(facts);
    follow(false, [&](const Known& known) {
      if (known.facts.key == facts.key) return !was_known;
      return facts.space == 2 && known.facts.space == 2 && !is_promised(known);
    });
    // The oldest went, and none of those that were leaves before and stayed is older.
    for (const auto& [gone, gone_s] : there)
      for (const auto& [left, left_s] : there)
        if (gone != facts.key && !known_.contains(gone) && known_.contains(left)) {
          ASSERT_LE(gone_s, left_s) << "at " << now_;
        }
    if (was_known) {
      ASSERT_EQ(placed.refusal, Catalog::Refusal::kKnown);
      if (!was_doomed) raise(facts.key, facts.ttl, facts.guaranteed_until_s);
      return;
    }
    ASSERT_NE(placed.refusal, Catalog::Refusal::kKnown);
    if (placed.refusal == Catalog::Refusal::kQuota) {
      ASSERT_EQ(facts.space, 2);
      ASSERT_TRUE(leaves(facts).empty() || !known_.contains(facts.parent))
          << "something could have gone at " << now_;
      ++refused_;
      return;
    }
    if (placed.refusal == Catalog::Refusal::kRoom) return reclaim();
    ASSERT_EQ(placed.place.offset % kBlock, 0);
    known_[facts.key] = {Known::State::kPlaced, facts, placed.place.segment, now_};
    known_.at(facts.key).facts.guaranteed_until_s = 0;
    raise(facts.key, facts.ttl, facts.guaranteed_until_s);
    writing_.push_back(facts.key);
    if (writing_.size() > 4 || noise_.below(2) == 0) finish();
  }
  // What may go for the quota of the new record's tenant, with its last use.
  std::map<ChainKey, std::int64_t> leaves(const RecordFacts& facts) const {
    std::map<ChainKey, std::int64_t> out;
    std::set<ChainKey> parents;
    for (const auto& [key, known] : known_) parents.insert(known.facts.parent);
    for (const auto& [key, known] : known_)
      if (known.facts.space == facts.space && facts.space == 2 &&
          known.state == Known::State::kLive && !is_promised(known) && !parents.contains(key) &&
          key != facts.parent)
        out[key] = known.last_use;
    return out;
  }
  void finish() {
    if (writing_.empty()) return;
    const ChainKey key = writing_.front();
    writing_.erase(writing_.begin());
    Known& known = known_.at(key);
    const bool failed = noise_.below(20) == 0;
    if (failed)
      catalog_->forget(key);
    else
      catalog_->commit(key, now_);
    if (failed || known.state == Known::State::kDoomed) {
      known_.erase(key);
      return;
    }
    known.state = Known::State::kLive;
    known.last_use = now_;
  }
  void raise(const ChainKey& key, TtlClass ttl, std::int64_t until) {
    Known& known = known_.at(key);
    known.facts.ttl = std::max(known.facts.ttl, ttl);
    for (auto it = known_.find(key); it != known_.end();
         it = known_.find(it->second.facts.parent)) {
      if (it->second.facts.guaranteed_until_s >= until) break;
      it->second.facts.guaranteed_until_s = until;
    }
  }
  void touch() {
    const std::int64_t i = any_chain();
    const TestChain& chain = chains_[static_cast<std::size_t>(i)];
    const std::int64_t pages = noise_.below(size(chain) + 1);
    const auto ttl = kAllTtlClasses[static_cast<std::size_t>(noise_.below(4))];
    const std::int64_t until = noise_.below(10) == 0 ? promised_until_ : 0;
    catalog_->touch(spaces_[static_cast<std::size_t>(i)], chain.keys, pages, ttl, until, now_);
    // The last one first: a promise of it reaches those before.
    const auto use = [&](std::int64_t first, int record_pages) {
      if (!is_alive(chain, first, record_pages)) return false;
      const ChainKey& key = chain.keys[static_cast<std::size_t>(first + record_pages - 1)];
      known_.at(key).last_use = now_;
      raise(key, ttl, until);
      return true;
    };
    const Tails ends = tails(chain, pages / kPages * kPages, pages % kPages);
    for (auto one = ends.rbegin(); one != ends.rend(); ++one) use(one->first, one->second);
    for (std::int64_t first = pages / kPages * kPages - kPages; first >= 0; first -= kPages)
      use(first, kPages);
  }
  void grow() {
    const auto i = static_cast<std::size_t>(any_chain());
    const std::int64_t shared = noise_.below(size(chains_[i]) + 1);
    const SpaceId space = spaces_[i];
    TestChain chain = TestChain::after(chains_[i], shared, 1 + noise_.below(30), ++numbers_);
    const auto out = static_cast<std::size_t>(any_chain());
    chains_[out] = std::move(chain);
    spaces_[out] = space;
  }
  void reclaim() {
    const std::optional<Catalog::Victim> victim = catalog_->victim(now_);
    if (!victim) return;
    ++reclaims_;
    std::set<ChainKey> kept;
    for (const Entry& entry : victim->keep) kept.insert(entry.facts.key);
    for (const auto& [key, known] : known_)
      if (known.segment == victim->segment && known.state == Known::State::kLive &&
          is_promised(known)) {
        ChainKey cut{};
        std::copy_n(key.begin(), 16, cut.begin());
        ASSERT_TRUE(kept.contains(cut)) << "a promised record is given up";
      }
    for (const Entry& entry : victim->keep) {
      const Catalog::Placed placed = catalog_->place_copy(entry.facts.key, now_);
      ASSERT_EQ(placed.refusal, Catalog::Refusal::kNone);
      if (placed.seal) catalog_->seal(*placed.seal, limits_.segment_bytes);
      if (noise_.below(50) == 0 && entry.facts.guaranteed_until_s < now_) {
        catalog_->forget_copy(placed.place);
        continue;
      }
      catalog_->commit_copy(entry.facts.key, placed.place);
      for (auto& [key, known] : known_)
        if (std::equal(key.begin(), key.begin() + 16, entry.facts.key.begin()))
          known.segment = placed.place.segment;
      ++kept_;
    }
    ASSERT_TRUE(catalog_->drop_victim(victim->segment, victim->keep, now_).empty());
    drop_segment(victim->segment);
  }
  void drop_segment() {
    const std::vector<SegmentId> all = catalog_->segments();
    if (!all.empty() && noise_.below(4) == 0)
      drop_segment(
          all[static_cast<std::size_t>(noise_.below(static_cast<std::int64_t>(all.size())))]
      );
  }
  void drop_segment(SegmentId segment) {
    catalog_->drop_segment(segment, MissReason::kEvicted);
    std::vector<ChainKey> in;
    for (const auto& [key, known] : known_)
      if (known.segment == segment && known.state != Known::State::kDoomed) in.push_back(key);
    for (const ChainKey& key : in) drop(key);
  }
  void expire() {
    const std::vector<SegmentId> dead = catalog_->dead_segments(now_);
    follow(true, [&](const Known& known) { return is_expired(known); });
    for (const SegmentId id : dead) {
      for (const auto& [key, known] : known_)
        if (known.segment == id) {
          ASSERT_TRUE(known.state == Known::State::kLive && !is_alive(known)) << "not dead";
        }
      drop_segment(id);
    }
  }
  void erase() {
    const TestChain& chain = chains_[static_cast<std::size_t>(any_chain())];
    const ChainKey key = chain.keys[static_cast<std::size_t>(noise_.below(size(chain)))];
    catalog_->erase(key, MissReason::kChecksum);
    drop(key);
  }
  void promise() {
    const std::int64_t until = catalog_->guarantee(
        static_cast<SpaceId>(noise_.below(3)), 4 * kRecord, TtlClass::kHour, now_
    );
    if (until > 0) promised_until_ = until;
  }

  TestNoise noise_;
  CatalogLimits limits_;
  std::unique_ptr<Catalog> catalog_;
  std::vector<TestChain> chains_;
  std::vector<SpaceId> spaces_;
  std::map<ChainKey, Known> known_;
  std::vector<ChainKey> writing_;
  std::uint64_t numbers_ = 0;
  std::int64_t now_ = 1'000'000, promised_until_ = 0, reclaims_ = 0, kept_ = 0, refused_ = 0;
};

TEST(CatalogProperty, IsWhatAPlainMapSays) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Twin twin(seed);
    for (int i = 0; i < 10'000; ++i) {
      twin.step();
      if (i % 2500 == 2499) twin.reopen();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
    twin.compare();
    EXPECT_GT(twin.reclaims(), 100);
    EXPECT_GT(twin.kept(), 10);
  }
}

}  // namespace
}  // namespace artery::kvstore
