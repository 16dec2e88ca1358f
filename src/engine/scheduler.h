#pragma once
// What the next step runs, as a pure function from state to plan: no clock, no pool, no model. The
// engine thread builds the state, calls plan() and applies the plan; tests simulate millions of
// steps with nothing else.
//
// Rules. Sequences are ranked by (priority, arrival, choice); lower is better.
//   1. Every running sequence that decodes gets its one row first.
//      Then drafts get rows, out of what is free: they preempt nobody.
//   2. What is left of the step (rows, and predicted seconds) goes to prefill chunks in order of
//      rank: running ones, and waiting ones, admitted while a slot is free and the pages for their
//      whole text suffice. Admission never skips: when one has to wait, all behind it wait, so a
//      long prompt cannot starve.
//   3. When pages run out the worst-ranked sequence that holds pages is preempted (its pages are
//      given back and recomputed later). A running sequence may take from every worse-ranked one, a
//      waiting one only from a worse priority, and the best-ranked of all from anyone. So the best
//      one always moves, and everything ends.
// One that waits for stored pages is not planned and holds up nobody: others are admitted past it,
// and what it holds is given back before anyone else's.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_cost.h"

namespace artery::engine {

// One unfinished choice.
struct SequenceView {
  int priority = 0;
  std::uint64_t arrival = 0;  // of its request; with `choice` unique
  int choice = 0;
  bool running = false;
  bool blocked = false;              // waits for another choice's prefill
  bool loading = false;              // waits for stored pages
  bool all_logits = false;           // wants logits of its prompt's rows
  int drafts = 0;                    // rows of drafted tokens that a decoding one would like to add
  std::int64_t tokens = 0;           // known: prompt and generated
  std::int64_t computed = 0;         // of these, positions whose KV is in pages
  std::int64_t pages = 0;            // held; a waiting one may hold a matched prefix
  std::int64_t pages_exclusive = 0;  // of these, nobody else's: what preemption gives back
};

struct SchedulerState {
  std::span<const SequenceView> sequences;  // any order
  std::int64_t pages_available = 0;         // free, or idle in the cache
};

struct Limits {
  int seqs_max = 1;              // running at once
  std::int64_t tokens_max = 1;   // rows of a step; at least seqs_max
  std::int64_t chunk_max = 0;    // rows of one prefill chunk; 0: no limit of its own
  std::int64_t logits_max = 64;  // rows of a step's chunks that want all logits
  double step_seconds_max = 0;   // predicted cost of a step; 0 or no `cost`: no limit
  const StepCost* cost = nullptr;
};

struct PlanItem {
  int sequence = 0;         // index into SchedulerState::sequences
  std::int64_t tokens = 0;  // rows to run from `computed` on, at least 1; drafts included
};

struct Plan {
  std::vector<PlanItem> items;  // a waiting sequence among them is admitted
  // Give back their pages before the items take theirs. A waiting sequence here only loses the
  // prefix it held.
  std::vector<int> preempted;
};

// Pages that `tokens` positions take.
std::int64_t pages_for(std::int64_t tokens);

Plan plan(const SchedulerState& state, const Limits& limits);

}  // namespace artery::engine
