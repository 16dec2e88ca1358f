#include "server/api/key_ring.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace artery::server {

Digest key_digest(std::string_view key) {
  return sha256(std::as_bytes(std::span(key.data(), key.size())));
}

namespace api {
namespace {

constexpr std::size_t kKeyLabelsMax = 200;
constexpr int kSlotWaitSeconds = 1;
constexpr int kWaitSecondsMax = 60;

// Time depends on nothing but the size.
bool equal_in_constant_time(const Digest& a, const Digest& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

ApiError refusal(std::string message, double wait_s) {
  const int seconds = std::clamp(static_cast<int>(std::ceil(wait_s)), 1, kWaitSecondsMax);
  message += fmt::format("; try again in {} s, or ask for a higher limit", seconds);
  return {429, "rate_limit_error", "rate_limit_exceeded", {}, std::move(message), seconds};
}

}  // namespace

void RateBucket::refill(std::int64_t per_minute, std::int64_t now_ns) {
  const auto most = static_cast<double>(per_minute);
  if (per_minute != per_minute_) {
    // A new or changed limit starts full; debt stays.
    left_ = per_minute_ > 0 && left_ < 0 ? left_ : most;
    per_minute_ = per_minute;
    at_ns_ = now_ns;
    return;
  }
  const double minutes = static_cast<double>(now_ns - at_ns_) * 1e-9 / 60;
  left_ = std::min(most, left_ + minutes * most);
  at_ns_ = now_ns;
}

double RateBucket::wait_s(std::int64_t per_minute, std::int64_t now_ns) {
  if (per_minute <= 0) return 0;
  refill(per_minute, now_ns);
  constexpr double kOne = 1 - 1e-9;  // one unit, but for rounding
  return left_ >= kOne ? 0 : (1 - left_) * 60 / static_cast<double>(per_minute);
}

void RateBucket::take(std::int64_t per_minute, double amount, std::int64_t now_ns) {
  if (per_minute <= 0) return;
  refill(per_minute, now_ns);
  left_ -= amount;
}

std::optional<ApiError> KeyUsage::enter(const ApiKey& key, std::int64_t now_ns) {
  const MutexLock lock(mu_);
  if (key.max_concurrent > 0 && counts_.running >= key.max_concurrent) {
    ++counts_.refused_concurrent;
    return refusal(
        fmt::format(
            "the key \"{}\" may have {} requests at once and has {}",
            key.name,
            key.max_concurrent,
            counts_.running
        ),
        kSlotWaitSeconds
    );
  }
  const double for_request = requests_.wait_s(key.requests_per_minute, now_ns);
  if (for_request > 0) {
    ++counts_.refused_requests;
    return refusal(
        fmt::format(
            "the key \"{}\" may send {} requests a minute", key.name, key.requests_per_minute
        ),
        for_request
    );
  }
  const double for_tokens = tokens_.wait_s(key.tokens_per_minute, now_ns);
  if (for_tokens > 0) {
    ++counts_.refused_tokens;
    return refusal(
        fmt::format(
            "the key \"{}\" may use {} tokens a minute and has used them",
            key.name,
            key.tokens_per_minute
        ),
        for_tokens
    );
  }
  requests_.take(key.requests_per_minute, 1, now_ns);
  ++counts_.requests;
  ++counts_.running;
  return std::nullopt;
}

void KeyUsage::leave() {
  const MutexLock lock(mu_);
  --counts_.running;
}

void KeyUsage::use(
    const ApiKey& key, std::int64_t prompt, std::int64_t generated, std::int64_t now_ns
) {
  const MutexLock lock(mu_);
  counts_.prompt_tokens += prompt;
  counts_.generated_tokens += generated;
  tokens_.take(key.tokens_per_minute, static_cast<double>(prompt + generated), now_ns);
}

KeyCounts KeyUsage::counts(const std::string& name) const {
  const MutexLock lock(mu_);
  KeyCounts out = counts_;
  out.name = name;
  return out;
}

void KeyLease::use(std::int64_t prompt_tokens, std::int64_t generated_tokens) {
  holder_->usage->use(holder_->key, prompt_tokens, generated_tokens, clock_->monotonic_ns());
}

void KeyLease::release() {
  if (!released_.exchange(true)) holder_->usage->leave();
}

void KeyRing::set(const std::vector<ApiKey>& keys) {
  const MutexLock lock(mu_);
  holders_.clear();
  for (const ApiKey& key : keys) {
    const auto [at, is_new] = usage_index_.try_emplace(key.name, usage_.size());
    if (is_new) usage_.emplace_back(key.name, std::make_shared<KeyUsage>());
    holders_.push_back(std::make_shared<const KeyHolder>(KeyHolder{key, usage_[at->second].second})
    );
  }
}

bool KeyRing::empty() const {
  const MutexLock lock(mu_);
  return holders_.empty();
}

std::shared_ptr<const KeyHolder> KeyRing::find(std::string_view presented) const {
  const Digest digest = key_digest(presented);
  const MutexLock lock(mu_);
  std::shared_ptr<const KeyHolder> found;
  for (const auto& holder : holders_) {
    if (equal_in_constant_time(holder->key.digest, digest)) found = holder;
  }
  return found;
}

std::vector<KeyCounts> KeyRing::counts() const {
  const MutexLock lock(mu_);
  std::vector<KeyCounts> out;
  KeyCounts rest;
  for (const auto& [name, usage] : usage_) {
    if (out.size() < kKeyLabelsMax) {
      out.push_back(usage->counts(name));
    } else {
      rest += usage->counts("_other");
    }
  }
  if (!rest.name.empty()) out.push_back(rest);
  return out;
}

}  // namespace api
}  // namespace artery::server
