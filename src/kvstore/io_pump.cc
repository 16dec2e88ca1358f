#include "kvstore/io_pump.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kvstore/catalog.h"

namespace artery::kvstore {

IoPump::IoPump(std::unique_ptr<IoQueue> queue, int depth, const Clock& clock)
    : clock_(clock), depth_(depth), looked_ns_(clock.monotonic_ns()), queue_(std::move(queue)) {}

IoPump::~IoPump() = default;

void IoPump::submit(Call call) {
  CHECK(call.file != nullptr && call.done != nullptr);
  const std::uint64_t tag = next_tag_++;
  auto& waiting = call.kind == IoRequest::Kind::kRead ? reads_ : writes_;
  waiting.push_back(tag);
  pending_.emplace(tag, Pending{.call = std::move(call)});
}

bool IoPump::send_one(std::uint64_t tag) {
  Pending& pending = pending_.at(tag);
  const Call& call = pending.call;
  const IoRequest request{
      .kind = call.kind,
      .file = call.file.get(),
      .offset = call.offset + pending.moved,
      .buffer = call.buffer.subspan(static_cast<std::size_t>(pending.moved)),
      .tag = tag,
  };
  if (!queue_->submit(request)) return false;
  if (pending.begun_ns < 0) pending.begun_ns = watched_ns();
  return true;
}

void IoPump::send() {
  for (auto* waiting : {&reads_, &writes_}) {
    while (!waiting->empty() && queue_->in_flight() < depth_ && send_one(waiting->front())) {
      waiting->pop_front();
    }
  }
}

void IoPump::run(int timeout_ms) {
  send();
  results_.clear();
  queue_->wait(results_, timeout_ms);
  // `done` may submit, never run(). What it submits is sent on the way: the disk should not run dry
  // while a batch of reads is verified.
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const IoResult result = results_[i];
    end(result);
    if (reads_.empty() && writes_.empty()) continue;
    send();
    if (i % kEndsAtOnce == 0) queue_->wait(results_, 0);
  }
}

void IoPump::end(const IoResult& result) {
  const auto at = pending_.find(result.tag);
  CHECK(at != pending_.end(), "an unknown request {} ended", result.tag);
  Pending& pending = at->second;
  const auto asked = static_cast<std::int64_t>(pending.call.buffer.size());
  if (result.error == 0) pending.moved += result.bytes;
  const bool is_short = pending.call.kind != IoRequest::Kind::kSync && pending.moved < asked;
  if (result.error == EINTR || result.error == EAGAIN || (result.error == 0 && is_short)) {
    // The end of a file gives nothing more; a disk that stutters goes on.
    const bool has_moved = result.error != 0 || result.bytes > 0;
    if (++pending.shorts <= (has_moved ? kShortsMax : 1)) {
      pending.moved -= pending.moved % kBlock;  // O_DIRECT goes on at a block only
      auto& waiting = pending.call.kind == IoRequest::Kind::kRead ? reads_ : writes_;
      waiting.push_front(result.tag);
      return;
    }
  }
  const IoEnd end{
      .kind = pending.call.kind,
      .error = result.error,
      .bytes = pending.moved,
      .took_ns = watched_ns() - pending.begun_ns,
      .is_late = pending.is_late,
  };
  const Call call = std::move(pending.call);
  pending_.erase(at);
  ++ended_;
  if (watch_) watch_(end);
  call.done(end);
}

std::int64_t IoPump::watched_ns() const {
  return watched_ns_ + std::min(clock_.monotonic_ns() - looked_ns_, kWatchNs);
}

int IoPump::newly_late() {
  const std::int64_t now = clock_.monotonic_ns();
  watched_ns_ += std::min(now - looked_ns_, kWatchNs);
  looked_ns_ = now;
  int late = 0;
  for (auto& [tag, pending] : pending_) {
    if (pending.begun_ns < 0 || pending.is_late) continue;
    if (watched_ns_ - pending.begun_ns < kLateNs) continue;
    pending.is_late = true;
    ++late;
  }
  return late;
}

void IoPump::abandon(std::unique_ptr<IoPump> pump) {
  if (pump->under_way() == 0) return;
  pump->watch_ = {};
  for (auto& [tag, pending] : pump->pending_) pending.call.done = nullptr;
  std::thread([held = std::move(pump)]() mutable { held.reset(); }).detach();
}

}  // namespace artery::kvstore
