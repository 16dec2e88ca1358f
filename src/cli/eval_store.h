#pragma once
// `eval --cache DIR`: prefixes of earlier lines, runs and servers from a store on disk. The same
// records as `serve` makes of the same model and numerics (without a tenant), so that either finds
// what the other computed. One thread, which waits for the disk.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/forward_driver.h"
#include "kvstore/store.h"
#include "model/model.h"

namespace artery::cli {

class EvalStore {
 public:
  // kUnsupported: no layer of the model sees all positions, so that there is nothing to keep.
  static Result<> check(const model::KvLayout& layout);
  // Of a model that passes check(). `swa_replay`: as Config::swa_replay, a namespace of its own.
  static std::unique_ptr<EvalStore> make(
      std::shared_ptr<kvstore::DiskStore> store, const model::Model& model, int swa_replay
  );

  // Pages of the longest stored prefix of `tokens`, at most `pages_max`, read into pages that
  // `take` gives.
  std::vector<PageId> load(
      std::span<const TokenId> tokens,
      std::size_t pages_max,
      const bench::KvMemory& memory,
      const std::function<PageId()>& take
  );
  // Offers the whole pages of `tokens` as records, those that are there already left out.
  void save(
      std::span<const TokenId> tokens,
      std::size_t prompt_tokens,
      std::span<const PageId> pages,
      const bench::KvMemory& memory
  );
  // Waits until all of it is on the disk.
  Result<> flush() { return store_->flush(); }

  std::int64_t tokens_loaded() const { return tokens_loaded_; }
  std::int64_t records_refused() const { return refused_; }

 private:
  EvalStore(std::shared_ptr<kvstore::DiskStore> store, kvstore::SpaceSpec spec, ChainKey root);
  bool offer(
      const std::vector<ChainKey>& keys,
      std::span<const TokenId> tokens,
      std::span<const PageId> pages,
      std::size_t first,
      const bench::KvMemory& memory
  );

  std::shared_ptr<kvstore::DiskStore> store_;
  kvstore::SpaceSpec spec_;
  kvstore::SpaceId space_ = 0;
  ChainKey root_{};
  bool unflushed_ = false;
  std::int64_t tokens_loaded_ = 0;
  std::int64_t refused_ = 0;
};

}  // namespace artery::cli
