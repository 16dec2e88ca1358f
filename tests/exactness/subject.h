#pragma once
// What is put to the test: a loaded model, the questions asked of it, and each question's reference
// answer, computed alone (one sequence, one thread, no prefix cache, chunks of 512). One thread,
// one engine at a time.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/load.h"
#include "switch_backend.h"
#include "testing/tiny_model.h"
#include "trace.h"

namespace artery::exactness {

// Everything that must not change an answer.
struct Setting {
  tensor::Isa isa = tensor::best_isa();
  int threads = 1;
  int chunk = 512;           // Config.prefill_chunk_max
  bool cache = false;        // prefix cache on
  std::int64_t pages = 0;    // of the KV pool; 0: more than the load needs
  int batched_tokens = 512;  // of a step
  int seqs = 64;             // running at once
  double step_seconds = 0;   // 0: chunks do not depend on the clock
  int drafts = 0;            // drafted tokens of a step and sequence, always verified
  std::shared_ptr<kvstore::RecordStore> store;  // behind the prefix cache; null: none
  bool windows_in_store = false;
  double window_ttl_s = 180;
};
std::string describe(const Setting& setting);

// Holds the engine's steps back, so that a test decides what has arrived by a step. Any thread.
class Gate {
 public:
  void close() { let(0); }
  void open() { let(kAll); }
  void let(std::int64_t steps) {
    const std::lock_guard lock(mu_);
    left_ = steps;
    changed_.notify_all();
  }
  // Engine thread, at the start of a step.
  void pass() {
    std::unique_lock lock(mu_);
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return left_ > 0; });
    waiting_ = false;
    --left_;
  }
  // Until a step is held back; false when none came within a second (nothing is left to do).
  bool wait_for_step() {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::seconds(1), [this] {
      return waiting_ && left_ == 0;
    });
  }

 private:
  static constexpr std::int64_t kAll = std::int64_t{1} << 60;
  std::mutex mu_;
  std::condition_variable changed_;
  std::int64_t left_ = kAll;
  bool waiting_ = false;
};

class Subject {
 public:
  static Result<std::unique_ptr<Subject>> tiny(
      const testing::TinyModelOptions& options, tensor::KvType kv_type
  );
  static Result<std::unique_ptr<Subject>> file(const std::string& path, std::int64_t context_max);

  const model::ModelInfo& info() const { return model_->info(); }
  Gate& gate() { return gate_; }
  // An engine under `setting` whose pool has `pages` pages and whose context is all of the model's
  // or as much as the pool holds.
  std::unique_ptr<engine::Engine> start(const Setting& setting, std::int64_t pages);

  // One question per length; sampling settings take turns; texts come from three families, so that
  // they share prefixes. Call once.
  void make_questions(const std::vector<int>& lengths, int answer_max);
  const std::vector<engine::Request>& questions() const { return questions_; }
  const Trace& reference(std::size_t question);

 private:
  Subject() = default;
  Result<void> load(const model::ModelFile& file, const model::LoadOptions& options);

  SwitchBackend backend_;
  std::unique_ptr<model::Model> model_;  // after the backend it computes with
  Gate gate_;
  std::vector<engine::Request> questions_;
  std::vector<std::unique_ptr<Trace>> references_;
};

}  // namespace artery::exactness
