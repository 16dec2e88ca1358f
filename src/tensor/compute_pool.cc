#include "tensor/compute_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace artery::tensor {
namespace {

#if defined(__x86_64__)
// Round to nearest, no flush-to-zero, no denormals-are-zero, exceptions masked. A host program or
// a library built with -ffast-math may have changed it on the calling thread.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : saved_(_mm_getcsr()), differs_((saved_ & kControl) != kDefault) {
    if (differs_) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if (differs_) _mm_setcsr(saved_);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1F80;
  static constexpr unsigned kControl = 0xFFC0;  // without the sticky exception flags
  unsigned saved_;
  bool differs_;
};
void relax() { _mm_pause(); }
#else
class DefaultFloatMode {
 public:
  DefaultFloatMode() {}
};
void relax() { std::this_thread::yield(); }
#endif

// How long a worker looks for the next loop before it sleeps: longer than the serial gaps within
// a step, far shorter than the gap between requests.
constexpr auto kSpin = std::chrono::microseconds(80);
constexpr int kLooksPerClockRead = 32;

// Waiting for a worker in its last chunk: the end of a last chunk is mostly nearer than this, some
// 50 us; beyond it the worker may have lost its processor and need the one this thread would burn.
// (Sleeping instead, so that the scheduler sees a free processor, was no better beside one busy
// thread: 300 runs of 0.2 s, in turn.)
constexpr int kSpinLooks = 2000;

}  // namespace

// `gate` is the whole protocol: bits 63..32 count the loops, bit 31 says the current one is open,
// bits 30..0 count the workers inside. A worker enters by a compare-and-swap on an open gate, so a
// worker that sleeps or lost its processor is never waited for; the caller closes the gate when the
// counter has run out and waits only for those inside. Job fields change only while it is closed
// and empty.
struct ComputePool::State {
  static constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
  static constexpr std::uint64_t kInside = kOpen - 1;

  std::atomic<std::uint64_t> gate{0};
  alignas(64) std::atomic<std::int64_t> next{0};
  alignas(64) std::int64_t count = 0;
  std::int64_t grain = 1;
  std::int64_t unit = 1;
  const std::function<void(std::int64_t, std::int64_t, int)>* body = nullptr;

  std::atomic<int> sleeping{0};
  std::atomic<bool> stop{false};
  Mutex mu;
  CondVar wake;
  std::vector<std::thread> workers;

  // Guided self-scheduling (Polychronopoulos and Kuck 1987): a share of what is left, so that the
  // last chunks are small and the threads end together.
  std::int64_t chunk_of(std::int64_t left) const {
    const auto shares = 2 * static_cast<std::int64_t>(workers.size() + 1);
    const std::int64_t share = (left / shares + unit - 1) / unit * unit;
    return std::clamp(share, unit, grain);
  }

  void run_chunks(int thread) {
    std::int64_t begin = next.load(std::memory_order_relaxed);
    for (;;) {
      if (begin >= count) return;
      const std::int64_t end = std::min(begin + chunk_of(count - begin), count);
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      (*body)(begin, end, thread);
      begin = next.load(std::memory_order_relaxed);
    }
  }

  // True when the worker is inside loop `epoch`, which it did not take part in before.
  bool try_enter(std::uint32_t& epoch) {
    std::uint64_t seen = gate.load(std::memory_order_seq_cst);
    while ((seen & kOpen) != 0 && static_cast<std::uint32_t>(seen >> 32) != epoch) {
      if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) {
        epoch = static_cast<std::uint32_t>(seen >> 32);
        return true;
      }
    }
    return false;
  }

  bool spin_for_work(std::uint32_t& epoch) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < kLooksPerClockRead; ++i) {
        if (try_enter(epoch)) return true;
        relax();
      }
    } while (std::chrono::steady_clock::now() < deadline && !stop.load());
    return false;
  }

  // Counted before the last look at the gate: either this thread sees the caller's new loop, or
  // the caller sees a sleeper and wakes it.
  bool sleep_for_work(std::uint32_t& epoch) {
    MutexLock lock(mu);
    sleeping.fetch_add(1, std::memory_order_seq_cst);
    bool entered = false;
    while (!stop.load() && !(entered = try_enter(epoch))) wake.wait(mu);
    sleeping.fetch_sub(1, std::memory_order_seq_cst);
    return entered;
  }

  void work(int thread) {
    const DefaultFloatMode mode;
    std::uint32_t epoch = 0;
    while (!stop.load()) {
      if (!spin_for_work(epoch) && !sleep_for_work(epoch)) continue;
      run_chunks(thread);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  void wait_until_empty() {
    int looks = 0;
    while ((gate.load(std::memory_order_acquire) & kInside) != 0) {
      if (++looks < kSpinLooks) {
        relax();
      } else {
        std::this_thread::yield();
      }
    }
  }
};

ComputePool::ComputePool(int threads) : state_(std::make_unique<State>()) {
  CHECK(threads >= 1, "a pool of {} threads", threads);
  for (int i = 1; i < threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

ComputePool::~ComputePool() {
  {
    const MutexLock lock(state_->mu);
    state_->stop.store(true);
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ComputePool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ComputePool::parallel_for(
    std::int64_t count,
    std::int64_t grain,
    const std::function<void(std::int64_t, std::int64_t, int)>& body,
    std::int64_t unit
) {
  if (count <= 0) return;
  if (unit == 0) unit = grain;
  CHECK(unit >= 1 && grain % unit == 0, "grain {} of units of {}", grain, unit);
  const DefaultFloatMode mode;
  State& s = *state_;
  if (s.workers.empty() || count <= grain) {
    for (std::int64_t begin = 0; begin < count; begin += grain) {
      body(begin, std::min(begin + grain, count), 0);
    }
    return;
  }
  s.count = count;
  s.grain = grain;
  s.unit = unit;
  s.body = &body;
  s.next.store(0, std::memory_order_relaxed);
  const std::uint64_t epoch = (s.gate.load(std::memory_order_relaxed) >> 32) + 1;
  s.gate.store((epoch << 32) | State::kOpen, std::memory_order_seq_cst);
  if (s.sleeping.load(std::memory_order_seq_cst) > 0) {
    const MutexLock lock(s.mu);
    s.wake.notify_all();
  }
  s.run_chunks(0);
  s.gate.fetch_and(~State::kOpen, std::memory_order_acq_rel);
  s.wait_until_empty();
}

}  // namespace artery::tensor
