#include "engine/scheduler.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/chain_key.h"

namespace artery::engine {
namespace {

SequenceView decoding(std::uint64_t arrival, std::int64_t tokens, int priority = 0) {
  SequenceView view;
  view.priority = priority;
  view.arrival = arrival;
  view.running = true;
  view.tokens = tokens;
  view.computed = tokens - 1;
  view.pages = view.pages_exclusive = pages_for(tokens - 1);
  return view;
}

SequenceView prefilling(std::uint64_t arrival, std::int64_t tokens, std::int64_t computed) {
  SequenceView view = decoding(arrival, tokens);
  view.computed = computed;
  view.pages = view.pages_exclusive = pages_for(computed);
  return view;
}

SequenceView waiting(std::uint64_t arrival, std::int64_t tokens, int priority = 0) {
  SequenceView view;
  view.priority = priority;
  view.arrival = arrival;
  view.tokens = tokens;
  return view;
}

Limits limits_of(int seqs, std::int64_t tokens, std::int64_t chunk = 0) {
  Limits limits;
  limits.seqs_max = seqs;
  limits.tokens_max = tokens;
  limits.chunk_max = chunk;
  return limits;
}

// "sequence:rows" of every item, and "-sequence" of every preempted one, by index.
std::string text(const Plan& plan) {
  std::map<int, std::int64_t> items;
  for (const PlanItem& item : plan.items) items[item.sequence] = item.tokens;
  std::string out;
  for (const auto& [sequence, tokens] : items) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : " ", sequence, tokens);
  }
  std::set<int> gone(plan.preempted.begin(), plan.preempted.end());
  for (const int sequence : gone) out += fmt::format("{}-{}", out.empty() ? "" : " ", sequence);
  return out;
}

std::string planned(
    const std::vector<SequenceView>& views, std::int64_t available, const Limits& limits
) {
  return text(plan({views, available}, limits));
}

TEST(Scheduler, DecodesAllRunningBesideChunks) {
  const std::vector<SequenceView> views = {
      decoding(1, 20), prefilling(2, 900, 100), decoding(3, 33), waiting(4, 300)
  };
  EXPECT_EQ(planned(views, 1000, limits_of(8, 512)), "0:1 1:510 2:1");
  EXPECT_EQ(planned(views, 1000, limits_of(8, 512, 64)), "0:1 1:64 2:1 3:64");
  EXPECT_EQ(planned(views, 1000, limits_of(8, 2000)), "0:1 1:800 2:1 3:300");
}

TEST(Scheduler, AdmitsByPriorityThenArrival) {
  const std::vector<SequenceView> views = {
      waiting(1, 50, 5), waiting(2, 50, 0), waiting(3, 50, 0), waiting(4, 50, -1)
  };
  EXPECT_EQ(planned(views, 100, limits_of(2, 512)), "1:50 3:50");
  EXPECT_EQ(planned(views, 100, limits_of(8, 110)), "1:50 2:10 3:50");
}

TEST(Scheduler, AdmissionNeverSkipsTheFirstInLine) {
  // The long one does not fit beside the running one; the short one behind it must not overtake.
  const std::vector<SequenceView> views = {decoding(1, 33), waiting(2, 640), waiting(3, 16)};
  EXPECT_EQ(planned(views, 20, limits_of(8, 512)), "0:1");
}

TEST(Scheduler, AdmissionKeepsPagesPromisedToRunningPrefill) {
  const std::vector<SequenceView> views = {prefilling(1, 320, 64), waiting(2, 64)};
  EXPECT_EQ(planned(views, 17, limits_of(8, 1000, 64)), "0:64");
  EXPECT_EQ(planned(views, 22, limits_of(8, 1000, 64)), "0:64 1:64");
}

TEST(Scheduler, PreemptsTheYoungestWhenPagesRunOut) {
  const std::vector<SequenceView> views = {decoding(1, 33), decoding(2, 33), decoding(3, 33)};
  EXPECT_EQ(planned(views, 0, limits_of(8, 512)), "0:1 1:1 -2");
  EXPECT_EQ(planned(views, 1, limits_of(8, 512)), "0:1 1:1 -2");
  EXPECT_EQ(planned(views, 3, limits_of(8, 512)), "0:1 1:1 2:1");
}

TEST(Scheduler, PreemptsTheWorstPriorityFirst) {
  const std::vector<SequenceView> views = {decoding(1, 33, 3), decoding(2, 33), decoding(3, 33)};
  EXPECT_EQ(planned(views, 0, limits_of(8, 512)), "1:1 2:1 -0");
}

TEST(Scheduler, TheBestOneNeverWaits) {
  // Nothing is free and the other shares all its pages: giving it up is all a step can do.
  std::vector<SequenceView> views = {decoding(1, 33), decoding(2, 40)};
  views[1].pages_exclusive = 0;
  EXPECT_EQ(planned(views, 0, limits_of(8, 512)), "-1");
  // A waiting one that holds a matched prefix is no obstacle either.
  views[1].running = false;
  views[1].pages_exclusive = 2;
  EXPECT_EQ(planned(views, 0, limits_of(8, 512)), "0:1 -1");
}

TEST(Scheduler, AWaitingOneTakesOnlyFromWorsePriorities) {
  const std::vector<SequenceView> same = {decoding(1, 30), decoding(2, 160), waiting(3, 160)};
  EXPECT_EQ(planned(same, 2, limits_of(8, 512)), "0:1 1:1");
  const std::vector<SequenceView> worse = {decoding(1, 30), decoding(2, 160, 9), waiting(3, 100)};
  EXPECT_EQ(planned(worse, 2, limits_of(8, 512)), "0:1 2:100 -1");
  // It would not suffice, so nobody is disturbed for nothing.
  const std::vector<SequenceView> vain = {decoding(1, 30), decoding(2, 160, 9), waiting(3, 500)};
  EXPECT_EQ(planned(vain, 2, limits_of(8, 512)), "0:1 1:1");
}

TEST(Scheduler, BlockedOnesAreLeftAlone) {
  std::vector<SequenceView> views = {waiting(1, 40), waiting(1, 40)};
  views[1].choice = 1;
  views[1].blocked = true;
  EXPECT_EQ(planned(views, 100, limits_of(8, 512)), "0:40");
}

TEST(Scheduler, LogitsOfWholePromptsAreBounded) {
  std::vector<SequenceView> views = {waiting(1, 200), waiting(2, 200), waiting(3, 200)};
  views[0].all_logits = views[1].all_logits = true;
  EXPECT_EQ(planned(views, 100, limits_of(8, 512)), "0:64");
  views[0].all_logits = false;
  EXPECT_EQ(planned(views, 100, limits_of(8, 512)), "0:200 1:64 2:200");
}

TEST(Scheduler, ChunksKeepTheStepBelowItsTime) {
  StepCost cost;
  for (int i = 1; i <= 60; ++i) cost.observe(i, 0, 0.010 + 0.001 * i);
  Limits limits = limits_of(8, 4096);
  limits.cost = &cost;
  limits.step_seconds_max = 0.2;
  const std::vector<SequenceView> views = {decoding(1, 20), prefilling(2, 4000, 0)};
  const Plan made = plan({views, 1000}, limits);
  ASSERT_EQ(made.items.size(), 2u);
  EXPECT_NEAR(static_cast<double>(made.items[1].tokens), 189, 4);
  // Even when every step is too dear, prefill moves.
  limits.step_seconds_max = 1e-6;
  EXPECT_EQ(planned(views, 1000, limits), "0:1 1:1");
}

// A whole life of random requests, with nothing but the scheduler. Pages are counted exactly, so
// the best-ranked sequence must be in every plan.
struct Job {
  SequenceView view;
  std::int64_t left = 0;  // tokens still to generate
};

class Simulation {
 public:
  Simulation(std::vector<Job> jobs, std::int64_t pages, Limits limits)
      : jobs_(std::move(jobs)), pages_(pages), limits_(limits) {}

  void step() {
    std::vector<SequenceView> views;
    std::int64_t used = 0;
    for (Job& job : jobs_) {
      job.view.pages_exclusive = job.view.pages;
      used += job.view.pages;
      views.push_back(job.view);
    }
    RC_ASSERT(used <= pages_);
    const Plan made = plan({views, pages_ - used}, limits_);
    check(made, views);
    for (const int index : made.preempted) {
      SequenceView& view = jobs_[static_cast<std::size_t>(index)].view;
      view.running = false;
      view.pages = view.computed = 0;
    }
    for (const PlanItem& item : made.items) advance(item);
    std::erase_if(jobs_, [](const Job& job) { return job.left == 0; });
  }
  bool done() const { return jobs_.empty(); }

 private:
  void check(const Plan& made, const std::vector<SequenceView>& views) const {
    const auto rank = [&](int i) {
      const SequenceView& view = views[static_cast<std::size_t>(i)];
      return std::tuple(view.priority, view.arrival, view.choice);
    };
    std::set<int> seen;
    std::int64_t rows = 0;
    for (const PlanItem& item : made.items) {
      const SequenceView& view = views[static_cast<std::size_t>(item.sequence)];
      RC_ASSERT(seen.insert(item.sequence).second);
      RC_ASSERT(item.tokens >= 1 && item.tokens <= view.tokens - view.computed);
      const bool decode = view.running && view.tokens - view.computed == 1;
      RC_ASSERT(decode || limits_.chunk_max == 0 || item.tokens <= limits_.chunk_max);
      rows += item.tokens;
    }
    RC_ASSERT(rows <= limits_.tokens_max);
    for (const int index : made.preempted) {
      RC_ASSERT(seen.insert(index).second);
      // Whoever is preempted makes room for a better one.
      RC_ASSERT(std::any_of(made.items.begin(), made.items.end(), [&](const PlanItem& item) {
        return rank(item.sequence) < rank(index);
      }));
    }
    int best = 0;
    for (int i = 1; i < static_cast<int>(views.size()); ++i) {
      if (rank(i) < rank(best)) best = i;
    }
    RC_ASSERT(std::any_of(made.items.begin(), made.items.end(), [&](const PlanItem& item) {
      return item.sequence == best;
    }));
    int running = 0;
    for (int i = 0; i < static_cast<int>(views.size()); ++i) {
      const bool gone =
          std::find(made.preempted.begin(), made.preempted.end(), i) != made.preempted.end();
      const bool runs = views[static_cast<std::size_t>(i)].running && !gone;
      running += runs || (seen.contains(i) && !gone) ? 1 : 0;
    }
    RC_ASSERT(running <= limits_.seqs_max);
  }

  void advance(const PlanItem& item) {
    Job& job = jobs_[static_cast<std::size_t>(item.sequence)];
    job.view.running = true;
    job.view.computed += item.tokens;
    job.view.pages = std::max(job.view.pages, pages_for(job.view.computed));
    if (job.view.computed < job.view.tokens) return;
    ++job.view.tokens;
    --job.left;
  }

  std::vector<Job> jobs_;
  const std::int64_t pages_;
  const Limits limits_;
};

RC_GTEST_PROP(SchedulerProperty, EverythingEndsWithinTheLimits, ()) {
  const auto pages = *rc::gen::inRange<std::int64_t>(4, 40);
  Limits limits;
  limits.seqs_max = *rc::gen::inRange(1, 9);
  limits.tokens_max = limits.seqs_max + *rc::gen::inRange<std::int64_t>(0, 100);
  limits.chunk_max = *rc::gen::element<std::int64_t>(0, 1, 17, 64);
  std::vector<Job> jobs;
  const int count = *rc::gen::inRange(1, 25);
  std::int64_t work = 0;
  for (int i = 0; i < count; ++i) {
    Job job;
    const std::int64_t total = *rc::gen::inRange<std::int64_t>(2, pages * kPageTokens + 1);
    job.view = waiting(
        static_cast<std::uint64_t>(i),
        *rc::gen::inRange<std::int64_t>(1, total),
        *rc::gen::inRange(-1, 2)
    );
    job.left = total - job.view.tokens;
    job.view.all_logits = *rc::gen::inRange(0, 8) == 0;
    work += total;
    jobs.push_back(job);
  }
  Simulation simulation(std::move(jobs), pages, limits);
  // The best one moves at least a row a step and is never preempted, so the sum is a bound.
  std::int64_t steps = 0;
  while (!simulation.done()) {
    simulation.step();
    RC_ASSERT(++steps <= work + count);
  }
}

// Any state at all, also ones the engine would not reach, with shared pages: no limit is broken and
// a step never has nothing to do.
RC_GTEST_PROP(SchedulerProperty, AnyStateMoves, ()) {
  Limits limits;
  limits.seqs_max = *rc::gen::inRange(1, 9);
  limits.tokens_max = limits.seqs_max + *rc::gen::inRange<std::int64_t>(0, 100);
  limits.chunk_max = *rc::gen::element<std::int64_t>(0, 1, 17, 64);
  std::vector<SequenceView> views;
  int running = 0;
  for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
    SequenceView view = waiting(
        static_cast<std::uint64_t>(i),
        *rc::gen::inRange<std::int64_t>(1, 400),
        *rc::gen::inRange(-1, 2)
    );
    view.computed = *rc::gen::inRange<std::int64_t>(0, view.tokens);
    view.running = running < limits.seqs_max && *rc::gen::arbitrary<bool>();
    if (!view.running) view.computed = view.computed / kPageTokens * kPageTokens;
    view.pages = pages_for(view.computed);
    view.pages_exclusive = *rc::gen::inRange<std::int64_t>(0, view.pages + 1);
    running += view.running ? 1 : 0;
    views.push_back(view);
  }
  const std::int64_t available = *rc::gen::inRange<std::int64_t>(0, 30);
  const Plan made = plan({views, available}, limits);
  std::int64_t rows = 0;
  std::int64_t taken = 0;
  for (const PlanItem& item : made.items) {
    const SequenceView& view = views[static_cast<std::size_t>(item.sequence)];
    rows += item.tokens;
    taken += std::max<std::int64_t>(0, pages_for(view.computed + item.tokens) - view.pages);
  }
  std::int64_t gained = available;
  for (const int i : made.preempted) gained += views[static_cast<std::size_t>(i)].pages_exclusive;
  RC_ASSERT(rows <= limits.tokens_max);
  RC_ASSERT(taken <= gained);
  if (!made.items.empty() || !made.preempted.empty()) return;
  // Only when the first in rank asks for more than there is and nobody else holds a page is there
  // nothing to do; submit refuses such a request.
  std::sort(views.begin(), views.end(), [](const SequenceView& a, const SequenceView& b) {
    return std::tie(a.priority, a.arrival) < std::tie(b.priority, b.arrival);
  });
  RC_ASSERT(pages_for(views[0].tokens) - views[0].pages > available);
  for (std::size_t i = 1; i < views.size(); ++i) RC_ASSERT(views[i].pages == 0);
}

}  // namespace
}  // namespace artery::engine
