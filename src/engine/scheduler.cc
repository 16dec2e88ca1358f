#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>

#include "base/chain_key.h"
#include "base/check.h"

namespace artery::engine {
namespace {

// The plan while it is made. Everything is indexed by place in rank order, best first.
class Planner {
 public:
  Planner(const SchedulerState& state, const Limits& limits) : limits_(limits) {
    for (int i = 0; i < static_cast<int>(state.sequences.size()); ++i) {
      const SequenceView& view = state.sequences[static_cast<std::size_t>(i)];
      if (view.blocked && !view.loading) continue;
      CHECK(view.computed < view.tokens, "a sequence without work is in the plan");
      ranked_.push_back({&view, i});
      if (view.running) ++running_;
    }
    std::sort(ranked_.begin(), ranked_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.view->loading, a.view->priority, a.view->arrival, a.view->choice) <
             std::tie(b.view->loading, b.view->priority, b.view->arrival, b.view->choice);
    });
    available_ = state.pages_available;
  }

  Plan make() {
    for (std::size_t at = 0; at < ranked_.size(); ++at) {
      if (decodes(ranked_[at])) add_decode(at);
    }
    for (std::size_t at = 0; at < ranked_.size(); ++at) {
      if (decodes(ranked_[at]) && ranked_[at].tokens == 1) add_drafts(at);
    }
    for (std::size_t at = 0; at < ranked_.size(); ++at) {
      Entry& entry = ranked_[at];
      if (entry.preempted || entry.view->loading || decodes(entry)) continue;
      if (entry.view->running) {
        add_chunk(at);
      } else if (!admission_closed_) {
        admission_closed_ = !admit(at);
      }
    }
    return collect();
  }

 private:
  struct Entry {
    const SequenceView* view;
    int index;
    bool preempted = false;
    bool admitted = false;
    std::int64_t tokens = 0;     // planned rows
    std::int64_t new_pages = 0;  // planned
  };

  static bool decodes(const Entry& entry) {
    return entry.view->running && !entry.preempted &&
           entry.view->tokens - entry.view->computed == 1;
  }
  static std::int64_t context_of(const SequenceView& view, std::int64_t tokens) {
    return tokens * view.computed + tokens * (tokens + 1) / 2;
  }

  // Whether the sequence at `at` may take pages from the worse-ranked one at `victim`.
  bool may_take(std::size_t at, std::size_t victim) const {
    const SequenceView& taker = *ranked_[at].view;
    return at == 0 || taker.running || ranked_[victim].view->priority > taker.priority;
  }

  void preempt(std::size_t at) {
    Entry& entry = ranked_[at];
    if (entry.tokens > 0) {
      available_ += entry.new_pages;
      rows_ -= entry.tokens;
      context_ -= context_of(*entry.view, entry.tokens);
      if (entry.view->all_logits) logit_rows_ -= entry.tokens;
      entry.tokens = 0;
      entry.new_pages = 0;
    }
    available_ += entry.view->pages_exclusive;
    if (entry.view->running || entry.admitted) --running_;
    entry.admitted = false;
    entry.preempted = true;
  }

  // Pages that `at` could have if it took all it may.
  std::int64_t reachable(std::size_t at) const {
    std::int64_t sum = available_;
    for (std::size_t victim = at + 1; victim < ranked_.size(); ++victim) {
      const Entry& entry = ranked_[victim];
      if (!entry.preempted && may_take(at, victim)) {
        sum += entry.view->pages_exclusive + entry.new_pages;
      }
    }
    return sum;
  }

  // Makes `count` pages available to the sequence at `at` if the rules allow it. A newcomer for
  // whom it would not suffice preempts nobody; the best-ranked one does so even then, because
  // pages that several victims share come free only when all of them are gone.
  bool secure(std::size_t at, std::int64_t count) {
    if (at > 0 && !ranked_[at].view->running && reachable(at) < count) return false;
    for (std::size_t victim = ranked_.size(); available_ < count && victim-- > at + 1;) {
      const Entry& entry = ranked_[victim];
      const bool holds = entry.view->pages > 0 || entry.new_pages > 0;
      if (!entry.preempted && holds && may_take(at, victim)) preempt(victim);
    }
    return available_ >= count;
  }

  void take(std::size_t at, std::int64_t tokens) {
    Entry& entry = ranked_[at];
    const std::int64_t pages = new_pages(entry, tokens);
    available_ -= pages - entry.new_pages;
    rows_ += tokens - entry.tokens;
    context_ += context_of(*entry.view, tokens) - context_of(*entry.view, entry.tokens);
    entry.new_pages = pages;
    entry.tokens = tokens;
    if (entry.view->all_logits) logit_rows_ += tokens;
  }

  static std::int64_t new_pages(const Entry& entry, std::int64_t tokens) {
    const std::int64_t need = pages_for(entry.view->computed + tokens) - entry.view->pages;
    return std::max<std::int64_t>(0, need);
  }

  void add_decode(std::size_t at) {
    if (rows_ >= limits_.tokens_max || !secure(at, new_pages(ranked_[at], 1))) return;
    take(at, 1);
  }

  void add_drafts(std::size_t at) {
    const Entry& entry = ranked_[at];
    const std::int64_t room =
        (entry.view->pages + entry.new_pages + available_) * kPageTokens - entry.view->computed - 1;
    const std::int64_t more =
        std::min({std::int64_t{entry.view->drafts}, limits_.tokens_max - rows_, room});
    if (more > 0) take(at, 1 + more);
  }

  // Most rows of a chunk that the step still has room for.
  std::int64_t chunk_room(const SequenceView& view) const {
    std::int64_t room = std::min(view.tokens - view.computed, limits_.tokens_max - rows_);
    if (limits_.chunk_max > 0) room = std::min(room, limits_.chunk_max);
    if (view.all_logits) room = std::min(room, limits_.logits_max - logit_rows_);
    if (room <= 0 || limits_.cost == nullptr || limits_.step_seconds_max <= 0) return room;
    std::int64_t low = 0;
    std::int64_t high = room;
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      const double seconds =
          limits_.cost->predict(rows_ + middle, context_ + context_of(view, middle));
      if (seconds <= limits_.step_seconds_max) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    // A step that is too dear even empty must not stop prefill for good.
    return low > 0 ? low : (chunks_ == 0 ? 1 : 0);
  }

  void add_chunk(std::size_t at) {
    const SequenceView& view = *ranked_[at].view;
    std::int64_t tokens = chunk_room(view);
    if (tokens <= 0) return;
    if (!secure(at, new_pages(ranked_[at], tokens))) {
      tokens = std::min(tokens, (view.pages + available_) * kPageTokens - view.computed);
      if (tokens <= 0) return;
    }
    take(at, tokens);
    ++chunks_;
  }

  // Pages that running prefills will still take; promised before anyone is admitted.
  std::int64_t promised(std::size_t newcomer) const {
    std::int64_t sum = 0;
    for (std::size_t at = 0; at < ranked_.size(); ++at) {
      const Entry& entry = ranked_[at];
      if (at == newcomer || entry.preempted || !(entry.view->running || entry.admitted)) continue;
      const std::int64_t rest = pages_for(entry.view->tokens) - entry.view->pages - entry.new_pages;
      sum += std::max<std::int64_t>(0, rest);
    }
    return sum;
  }

  bool free_slot(std::size_t at) {
    for (std::size_t victim = ranked_.size(); running_ >= limits_.seqs_max && victim-- > at + 1;) {
      const Entry& entry = ranked_[victim];
      const bool runs = entry.view->running && !entry.preempted;
      const bool worse = entry.view->priority > ranked_[at].view->priority;
      if (runs && (at == 0 || worse)) preempt(victim);
    }
    return running_ < limits_.seqs_max;
  }

  bool admit(std::size_t at) {
    Entry& entry = ranked_[at];
    // Look before preempting anyone: without room in the step nothing is gained. The best-ranked
    // one finds room in any case, because a slot taken from another frees that one's row.
    if ((at > 0 && chunk_room(*entry.view) <= 0) || !free_slot(at)) return false;
    const std::int64_t whole = new_pages(entry, entry.view->tokens - entry.view->computed);
    // The best-ranked one owes nobody: promises to worse ones are broken by preemption. A page
    // for each running one keeps a newcomer from being preempted at once by their growth.
    const std::int64_t owed = at == 0 ? 0 : promised(at) + running_;
    if (!secure(at, whole + owed)) return false;
    const std::int64_t tokens = chunk_room(*entry.view);
    if (tokens <= 0) return false;
    take(at, tokens);
    entry.admitted = true;
    ++running_;
    ++chunks_;
    return true;
  }

  Plan collect() const {
    Plan out;
    for (const Entry& entry : ranked_) {
      if (entry.preempted) out.preempted.push_back(entry.index);
      if (entry.tokens > 0) out.items.push_back({entry.index, entry.tokens});
    }
    return out;
  }

  const Limits& limits_;
  std::vector<Entry> ranked_;
  std::int64_t available_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t context_ = 0;
  std::int64_t logit_rows_ = 0;
  int running_ = 0;
  int chunks_ = 0;
  bool admission_closed_ = false;
};

}  // namespace

std::int64_t pages_for(std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

Plan plan(const SchedulerState& state, const Limits& limits) {
  CHECK(limits.seqs_max > 0 && limits.tokens_max >= limits.seqs_max);
  return Planner(state, limits).make();
}

}  // namespace artery::engine
