#pragma once
// Who sent a request and whether they may send it now: the keys of the server, and for each name a
// count of what its requests use. Keys can be replaced while requests run; a name that stays keeps
// its counts. All methods from any thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/api/errors.h"
#include "server/api_key.h"
#include "server/metrics.h"

namespace artery::server::api {

// A rate with a burst of one minute's worth. What is used may go into debt: a request is let in
// while anything is left, since what it will use is not known before.
class RateBucket {
 public:
  // Seconds until something is left; 0: now. `per_minute` 0: always now.
  double wait_s(std::int64_t per_minute, std::int64_t now_ns);
  void take(std::int64_t per_minute, double amount, std::int64_t now_ns);

 private:
  void refill(std::int64_t per_minute, std::int64_t now_ns);
  double left_ = -1;
  std::int64_t per_minute_ = 0, at_ns_ = 0;
};

// What the requests of one name use and used.
class KeyUsage {
 public:
  // Lets one more request in, or says why not (429 with the seconds to wait).
  std::optional<ApiError> enter(const ApiKey& key, std::int64_t now_ns);
  void leave();
  void use(const ApiKey& key, std::int64_t prompt, std::int64_t generated, std::int64_t now_ns);
  KeyCounts counts(const std::string& name) const;

 private:
  mutable Mutex mu_;
  RateBucket requests_ GUARDED_BY(mu_), tokens_ GUARDED_BY(mu_);
  KeyCounts counts_ GUARDED_BY(mu_);
};

// A key as it was when a request came with it.
struct KeyHolder {
  ApiKey key;
  std::shared_ptr<KeyUsage> usage;
};

// One request's place among those of its key.
class KeyLease {
 public:
  KeyLease(std::shared_ptr<const KeyHolder> holder, const Clock& clock)
      : holder_(std::move(holder)), clock_(&clock) {}
  ~KeyLease() { release(); }
  KeyLease(const KeyLease&) = delete;
  KeyLease& operator=(const KeyLease&) = delete;

  const ApiKey& key() const { return holder_->key; }
  void use(std::int64_t prompt_tokens, std::int64_t generated_tokens);
  // Before the answer's last byte: the client may send its next request upon it. Idempotent.
  void release();

 private:
  const std::shared_ptr<const KeyHolder> holder_;
  const Clock* clock_;
  std::atomic<bool> released_{false};
};

class KeyRing {
 public:
  void set(const std::vector<ApiKey>& keys);
  bool empty() const;
  // Null when no key fits. Takes the same time whichever does.
  std::shared_ptr<const KeyHolder> find(std::string_view presented) const;
  // By name; beyond kKeyLabelsMax names the rest is one, "_other", so that metrics stay bounded.
  std::vector<KeyCounts> counts() const;

 private:
  mutable Mutex mu_;
  std::vector<std::shared_ptr<const KeyHolder>> holders_ GUARDED_BY(mu_);
  // In order of first appearance, so that a name keeps its label. Names that went stay: their
  // counters must not start again at zero when they come back.
  std::vector<std::pair<std::string, std::shared_ptr<KeyUsage>>> usage_ GUARDED_BY(mu_);
  std::unordered_map<std::string, std::size_t> usage_index_ GUARDED_BY(mu_);
};

}  // namespace artery::server::api
