#pragma once
// A store that loads always seem to come from at once: tiny models compute their prompts faster
// than any disk answers, and would never load. Calls go on to another store.

#include <cmath>
#include <memory>
#include <utility>

#include "kvstore/record_store.h"

namespace artery::exactness {

class EagerStore final : public kvstore::RecordStore {
 public:
  explicit EagerStore(std::shared_ptr<kvstore::RecordStore> inner) : inner_(std::move(inner)) {}

  kvstore::SpaceId open_space(const kvstore::SpaceSpec& spec) override {
    return inner_->open_space(spec);
  }
  kvstore::Found find(kvstore::SpaceId space, std::span<const ChainKey> keys) override {
    return inner_->find(space, keys);
  }
  bool contains(kvstore::SpaceId space, const ChainKey& key) override {
    return inner_->contains(space, key);
  }
  void touch(
      kvstore::SpaceId space,
      std::span<const ChainKey> keys,
      std::int64_t pages,
      kvstore::TtlClass ttl,
      std::int64_t guaranteed_until_s
  ) override {
    inner_->touch(space, keys, pages, ttl, guaranteed_until_s);
  }
  kvstore::Offer offer(
      const kvstore::RecordFacts& facts,
      std::span<const TokenId> ids,
      const std::function<void(std::span<std::byte>)>& fill
  ) override {
    return inner_->offer(facts, ids, fill);
  }
  std::int64_t guarantee(kvstore::SpaceId space, std::int64_t bytes, kvstore::TtlClass ttl)
      override {
    return inner_->guarantee(space, bytes, ttl);
  }
  double load_seconds(std::int64_t bytes) const override {
    const double seconds = inner_->load_seconds(bytes);
    return std::isfinite(seconds) ? 0 : seconds;
  }
  // Its deadline follows from load_seconds: too short where many processes share the disk.
  kvstore::LoadId load(
      kvstore::SpaceId space, std::vector<kvstore::Wanted> wanted, std::int64_t deadline_ns
  ) override {
    constexpr std::int64_t kMore = 500'000'000;  // within the engine's own second of grace
    return inner_->load(space, std::move(wanted), deadline_ns + kMore);
  }
  void cancel(kvstore::LoadId load) override { inner_->cancel(load); }
  void poll(std::int64_t bytes_max, const std::function<void(const kvstore::Piece&)>& take)
      override {
    inner_->poll(bytes_max, take);
  }
  void set_notify(std::function<void()> notify) override { inner_->set_notify(std::move(notify)); }
  kvstore::StoreStatus status() const override { return inner_->status(); }

 private:
  std::shared_ptr<kvstore::RecordStore> inner_;
};

}  // namespace artery::exactness
