#pragma once
// Computes a step: the model's forward pass, then the samples of its rows, on the model's threads.
// Owns the step's logits (reused, so a step does not allocate once it has grown). fill() belongs to
// the engine thread, the rest to the thread that computes; changes no sequence.

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/kv_spaces.h"
#include "engine/sampler.h"
#include "engine/step_work.h"
#include "model/model.h"

namespace artery::engine {

class Runner {
 public:
  Runner(model::Model& model, KvSpaces& spaces, const Clock& clock);

  // The batch of work.items, whose pages are held. Checks the page rules.
  void fill(StepWork& work) const;

  // Takes the tokens that the step before sampled, drops the rows of sequences that these ended,
  // and runs the model: writes KV, keeps the logits until the next forward.
  void forward(StepWork& work);
  // Samples every item that wants it. After Core::arm.
  void sample(StepWork& work);

 private:
  // What a step left for the next one, per item.
  struct Carried {
    TokenId token = 0;
    bool ended = false;
  };
  // One row of logits and what is wanted of it.
  struct Job {
    StepItem* item;
    std::int64_t row;  // of the chunk
    bool prompt;       // the log probabilities of the prompt's next token, else a sample
  };

  void add(StepWork& work, const StepItem& item, std::size_t at) const;
  void add_pages(StepWork& work, const StepItem& item, std::size_t at) const;
  void add_window_pages(StepWork& work, const StepItem& item, std::size_t at) const;
  void take_late_tokens(StepWork& work) const;
  static void drop_rows(StepWork& work);
  std::vector<model::PageTable> tables_of(const StepWork& work) const;
  void list_jobs(StepWork& work);
  void run_job(const Job& job, Sampler& sampler) const;
  void verify(StepItem& item, std::int64_t row, SampleContext context, Sampler& sampler) const;
  std::span<const float> logits(const StepItem& item, std::int64_t row) const;

  model::Model& model_;
  KvSpaces& spaces_;
  const Clock& clock_;
  std::vector<float> logits_;      // [logit rows, vocab]
  std::vector<Sampler> samplers_;  // one per thread
  std::vector<Job> jobs_;
  std::vector<Carried> carried_;
};

}  // namespace artery::engine
