#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "engine/engine.h"

namespace artery::engine {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }
}

}  // namespace

void EventStream::push(Event event) {
  std::function<void()> notify;
  {
    MutexLock lock(mu_);
    auto [it, fresh] = pending_.try_emplace(event.choice);
    Event& into = it->second;
    if (fresh) {
      into = std::move(event);
    } else {
      if (into.token_ids.empty()) into.first_position = event.first_position;
      append(into.token_ids, event.token_ids);
      into.cached_tokens = std::max(into.cached_tokens, event.cached_tokens);
      append(into.logprobs, event.logprobs);
      append(into.prompt_logprobs, event.prompt_logprobs);
      if (event.finish) into.finish = std::move(event.finish);
    }
    pending_cv_.notify_one();
    notify = notify_;
  }
  if (notify) notify();
}

std::optional<Event> EventStream::poll() {
  MutexLock lock(mu_);
  if (pending_.empty()) return std::nullopt;
  auto first = pending_.extract(pending_.begin());
  return std::move(first.mapped());
}

std::optional<Event> EventStream::wait(int timeout_ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  MutexLock lock(mu_);
  while (pending_.empty()) {
    if (pending_cv_.wait_until(mu_, until) == std::cv_status::timeout) break;
  }
  if (pending_.empty()) return std::nullopt;
  auto first = pending_.extract(pending_.begin());
  return std::move(first.mapped());
}

void EventStream::set_notify(std::function<void()> notify) {
  MutexLock lock(mu_);
  notify_ = std::move(notify);
}

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "abort";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

}  // namespace artery::engine
