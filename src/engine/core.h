#pragma once
// The engine without its threads: requests, pages, prefix cache, and the three parts of a step:
// prepare() plans it, a Runner computes it, complete() commits what came of it. One step may be
// prepared while the one before it computes: what that one will do is known but for the tokens it
// samples, and the Runner puts those in (StepItem::late). Called by one thread only (the engine
// thread, or a test's). Knows no locks; consumers are reached only through their EventStream.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/choice.h"
#include "engine/engine.h"
#include "engine/kv_spaces.h"
#include "engine/prefix_cache.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/step_cost.h"
#include "engine/step_work.h"
#include "engine/store_link.h"
#include "engine/window_cache.h"
#include "engine/window_link.h"

namespace artery::engine {

class Core {
 public:
  // `config` is checked and complete (pool_size.h); `model` and `clock` outlive the core.
  Core(
      model::Model& model,
      std::unique_ptr<KvSpaces> spaces,
      Config config,
      const Clock& clock,
      Observer observer
  );
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Ids come in ascending order; it is the order of arrival.
  void add(Submission submission);
  // Unknown ids are ignored.
  void cancel(RequestId id);
  void finish_choice(RequestId id, int choice);
  void cancel_all();

  // Plans the next step and takes its pages. Null when nothing can run before an outstanding step
  // is completed. At most one step may be outstanding (prepared and not completed).
  std::unique_ptr<StepWork> prepare();
  // Takes what came of loads, at most some milliseconds' worth. True: one of them ended, so that a
  // step which has not begun may be planned better. prepare() calls it too.
  bool poll_store();
  // More is at hand already; poll again soon.
  bool store_has_more() const { return link_.more; }
  bool loading() const { return !link_.loads.empty() || !window_link_.loads.empty(); }
  // The last prepare() found nothing to run because all that waits, waits for the store.
  bool stalled() const { return stalled_; }

  // Takes a step back that will not be computed; it is the last one prepared.
  void unprepare(std::unique_ptr<StepWork> work);
  // Makes the grammar masks of a step's samples. All steps before it are completed.
  void arm(StepWork& work);
  // Commits a computed step, in the order of preparation. Its events wait for deliver().
  void complete(std::unique_ptr<StepWork> work);
  // Pushes the events of the steps completed since the last call.
  void deliver();
  // The four above and the runner's two in a row: one step over what is there, nothing when idle.
  void step();
  Runner& runner() { return runner_; }

  bool idle() const { return requests_.empty(); }
  // Requests none of whose choices ran yet.
  int waiting_requests() const;
  // Ids of requests that ended since the last call.
  std::vector<RequestId> take_finished() { return std::exchange(finished_, {}); }

  // Drops idle pages; false when pages of running sequences remain.
  bool reset_prefix_cache();
  // Counters and gauges; the fields about the inbox and the thread are left alone.
  void fill(Status& status) const;
  void check_integrity() const;
  KvSpaces& spaces() { return *spaces_; }
  // Why nothing is kept in Config::store; empty: something is, or there is none. Any thread.
  const std::string& store_unused() const { return store_unused_; }

 private:
  struct Live {
    RequestState* request;
    Choice* choice;
  };

  void expire_deadlines();
  void list_live();
  void match_prefixes();
  void match_prefix(const Live& live);
  Plan make_plan();
  Plan plan_what_moves();
  SequenceView view_of(const Live& live, bool pages_short) const;
  Limits limits() const;
  void apply(const Plan& plan);
  void preempt(const Live& live);
  void admit(const Live& live);
  std::unique_ptr<StepWork> make_work(const Plan& plan);
  StepItem make_item(const Live& live, std::int64_t rows) const;
  void take_back(const StepItem& item);
  void recycle(std::unique_ptr<StepWork> work);

  // core_store.cc, with a store only.
  void connect_store();
  void look_for_loads();
  kvstore::Found find_stored(const Live& live);
  void look_in_store(const Live& live, std::int64_t pages_max);
  bool follow(const Live& live, std::span<const kvstore::Extent> wanted);
  bool worth_loading(const Live& live, std::int64_t end_page, std::int64_t bytes);
  double compute_seconds(std::int64_t from, std::int64_t to) const;
  MissReason why_not_load(double load_s, std::int64_t from, std::int64_t to) const;
  std::int64_t start_of(const Live& live, std::int64_t pages) const;
  void begin_load(const Live& live, std::vector<kvstore::Extent> wanted, std::int64_t end_page);
  void take_piece(const kvstore::Piece& piece);
  void take_record(StoreLoad& load, std::span<const std::byte> payload);
  void end_load(kvstore::LoadId id, MissReason why);
  void wake(Choice& choice, RequestState& request, bool look_again);
  bool wake_followers();
  void leave_load(const Live& live);
  std::int64_t pages_reserved(const Choice& choice) const;
  bool pages_safe(const StoreLoad& load) const;
  void note_use(const Live& live, std::int64_t matched);
  std::int64_t promise_bytes(const Live& live) const;
  void write_through(const Live& live, bool ends);
  bool offer_record(const Live& live, std::int64_t first, std::int64_t pages);
  std::int64_t next_unit(const Live& live, std::int64_t pages, bool ends) const;

  // core_accounts.cc
  void account(const Live& live);
  MissReason why_missed(const Live& live, std::int64_t matched, std::int64_t usable) const;
  MissReason why_no_window(const Live& live, std::int64_t cached, std::int64_t matched) const;

  // core_windows.cc, for a model with window groups only.
  std::optional<ChainKey> window_key(
      const RequestState& request, const Choice& choice, std::int64_t boundary
  ) const;
  void expire_windows();
  void choose_start(const Live& live);
  void admit_windows(const Live& live);
  void take_window_pages(Choice& choice, std::int64_t end);
  void save_window(const Live& live, std::int64_t boundary);
  void land_windows(const Live& live, std::int64_t before);
  void give_up_windows(const Live& live);
  void forget_windows(const RequestState& request);
  void check_windows() const;

  // core_window_store.cc, with a store that keeps windows.
  void connect_window_store();
  bool has_only_windows() const { return windows_ != nullptr && link_.page_bytes == 0; }
  bool fits_store(const WindowShape& shape) const;
  void note_store_unused();
  void hint_at_windows();
  kvstore::TtlClass window_class(kvstore::TtlClass asked) const;
  kvstore::SpaceId window_space(const std::string& tenant);
  std::vector<int> window_records(std::int64_t pages) const;
  std::span<const TokenId> window_ids(const Choice& choice, std::int64_t boundary) const;
  void store_window(const Live& live, std::int64_t boundary);
  bool window_stored(const Live& live, std::int64_t boundary);
  void touch_window(const Live& live, std::int64_t boundary);
  std::int64_t last_stored_window(const Live& live, std::int64_t from, std::int64_t to);
  std::int64_t window_bytes(std::int64_t boundary) const;
  void look_for_windows();
  void look_for_window(const Live& live);
  void begin_window_load(const Live& live, std::int64_t start, std::int64_t boundary);
  bool window_pages_safe() const;
  void take_window_piece(const kvstore::Piece& piece);
  void end_window_load(kvstore::LoadId id, MissReason why);
  bool keep_window(WindowLoad& load, kvstore::LoadId id);
  void learn_pages(const Live& live, std::int64_t boundary);
  void stop_waiting(const Live& live);
  void leave_window_load(const Live& live);
  bool expire_window_loads(std::int64_t now_ns);

  void land(StepItem& item);
  void count(const StepWork& work);
  void offer_pages(const Live& live, std::int64_t computed_before);
  void collect_prompt_logprobs(StepItem& item);
  void prompt_ready(const Live& live);
  void take_sample(const Live& live, Position position, Result<Sampled>& sampled);
  // core_drafts.cc
  bool drafts_wait() const;
  void propose_drafts();
  void look_for_draft(const Live& live);
  std::int64_t drafts_wanted(const Live& live) const;
  void land_verified(StepItem& item);
  void learn_draft_cost(const StepWork& work, double seconds);
  void take_token(const Live& live, TokenId token, Event event);
  void extend_keys(const RequestState& request, Choice& choice) const;
  void finish(const Live& live, Event event, Finish finish);
  void release(Choice& choice);
  void end(const Live& live, FinishReason reason);
  void push(const RequestState& request, Event event);
  void promote_leader(RequestState& request);
  Usage usage(const RequestState& request, const Choice& choice) const;
  void remove_finished();

  model::Model& model_;
  std::unique_ptr<KvSpaces> spaces_;
  KvPool& pool_;  // the global space
  const Config config_;
  const Clock& clock_;
  Observer observer_;
  // After spaces_: they give their pages back first. No windows_: no window groups.
  std::unique_ptr<WindowCache> windows_;
  PrefixCache cache_;
  Runner runner_;
  StepCost cost_;
  std::map<std::uint64_t, std::unique_ptr<RequestState>> requests_;  // by id
  std::vector<RequestId> finished_;
  std::vector<std::pair<std::shared_ptr<EventStream>, Event>> outbox_;
  std::vector<Live> live_;           // of the step being prepared, by rank
  std::vector<SequenceView> views_;  // of live_
  std::vector<std::unique_ptr<StepWork>> spare_;
  StoreLink link_;  // its store is null without one; after spaces_
  WindowLink window_link_;
  std::string store_unused_;
  bool has_hinted_ = false;  // hint_at_windows()
  int outstanding_ = 0;
  std::uint64_t prepared_ = 0;  // steps
  // Pages may have been given back, in steps up to this one, that such a step still uses.
  std::uint64_t hazard_ = 0;
  bool stalled_ = false;
  std::int64_t draft_rows_ = 0;           // of the outstanding steps
  std::int64_t last_decode_rows_ = 0;     // of the last step completed, without drafts
  double draft_cost_bias_ = 1;            // seconds of steps with drafts, over cost_'s prediction
  std::int64_t last_forward_end_ns_ = 0;  // 0: the engine was idle since
  std::int64_t last_end_ns_ = 0;
  Status counters_;
};

}  // namespace artery::engine
