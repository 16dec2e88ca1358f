#include "kvstore/store_thread.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "kvstore/tenant_keys.h"

namespace artery::kvstore {
namespace {

constexpr int kTurnMs = 100;       // the longest wait: deadlines and clocks are looked at
constexpr int kIdleTurnsMax = 20;  // at the end, without any request's end: the rest hangs

}  // namespace

// Asked by another thread, which waits for the answer.
struct StoreThread::Question {
  std::function<std::optional<Result<std::int64_t>>()> step;
  Mutex mu;
  CondVar answered;
  std::optional<Result<std::int64_t>> answer GUARDED_BY(mu);

  void give(Result<std::int64_t> result) {
    const MutexLock lock(mu);
    if (!answer) answer = std::move(result);
    answered.notify_all();
  }
  Result<std::int64_t> wait() {
    const MutexLock lock(mu);
    while (!answer) answered.wait(mu);
    return *answer;
  }
};

StoreThread::StoreThread(std::unique_ptr<StoreCore> core)
    : core_(std::move(core)),
      reader_(*core_),
      writer_(*core_),
      checkpointer_(*core_),
      reclaimer_(*core_, writer_) {
  core_->io->set_watch([this](const IoEnd& end) { core_->watch(end); });
}

StoreThread::~StoreThread() {
  stop();
  IoPump::abandon(std::move(core_->io));
}

void StoreThread::stop() {
  {
    const MutexLock lock(mu_);
    is_stopping_ = true;
  }
  core_->io->wake();
  if (!thread_.joinable()) return;
  thread_.join();
  // Whoever posts from here on is told by post(); what came just before is answered here.
  run_inbox();
  give_up_questions();
}

void StoreThread::give_up_questions() {
  for (const auto& question : std::exchange(questions_, {})) {
    question->give(fail(Code::kUnavailable, "{}: the store is closing", core_->config.folder));
  }
}

void StoreThread::start() {
  for (const auto& [id, segment] : core_->segments.all()) {
    if (segment.wants_seal) writer_.resume_seal(id);
  }
  core_->sync_gates();
  thread_ = std::thread([this] { main(); });
}

bool StoreThread::post(std::function<void(StoreThread&)> job) {
  bool was_empty = false;
  {
    const MutexLock lock(core_->state->inbox_mu);
    was_empty = core_->state->inbox.empty();
    core_->state->inbox.push_back(std::move(job));
  }
  if (was_empty) core_->io->wake();
  const MutexLock lock(mu_);
  return !is_stopping_;
}

void StoreThread::run_inbox() {
  std::deque<std::function<void(StoreThread&)>> jobs;
  {
    const MutexLock lock(core_->state->inbox_mu);
    jobs.swap(core_->state->inbox);
  }
  for (const auto& job : jobs) job(*this);
}

void StoreThread::turn() {
  run_inbox();
  core_->report_late(core_->io->newly_late());
  if (core_->is_out()) {
    reader_.end_all(MissReason::kBudget);
    writer_.drop_all();
  }
  probe();
  reader_.pump();
  writer_.pump();
  checkpointer_.pump();
  reclaimer_.pump();
  answer_questions();
  publish();
  core_->io->run(timeout_ms());
}

bool StoreThread::is_stopping() const {
  const MutexLock lock(mu_);
  return is_stopping_;
}

void StoreThread::main() {
  int idle = 0;
  while (true) {
    const bool stops = is_stopping();
    if (stops) {
      core_->wants_round = true;
      if (is_drained() || idle >= kIdleTurnsMax) break;
    }
    const std::uint64_t ended = core_->io->ended();
    turn();
    idle = stops && core_->io->ended() == ended ? idle + 1 : 0;
  }
  run_inbox();
  reader_.end_all(MissReason::kBudget);
  publish();
  close();
  give_up_questions();
}

// Nothing of ours is left to be written. Reads end with the store.
bool StoreThread::is_drained() {
  {
    const MutexLock lock(core_->state->inbox_mu);
    if (!core_->state->inbox.empty()) return false;
  }
  if (core_->config.read_only || core_->is_out()) return true;
  // A disk that takes no writes is not waited for: each round would fail, and count as progress.
  if (core_->write_breaker.is_open() || core_->is_read_only_now) return true;
  return writer_.is_idle() && checkpointer_.is_idle() && checkpointer_.is_clean();
}

void StoreThread::close() {
  if (core_->config.read_only || core_->is_out() || core_->is_read_only_now) return;
  if (!writer_.is_idle() || !checkpointer_.is_clean()) return;
  SuperBlock super = core_->super;
  super.is_clean = true;
  const Result<> closed = core_->write_super(super);
  if (!closed) log_warn("kvstore {}", closed.error().message);
}

// One read and one write say whether the disk is well again.
void StoreThread::probe() {
  const std::int64_t now = core_->now_ns();
  if (!core_->away.empty()) return;
  if (is_probing_ || core_->super_file == nullptr) {
    if (core_->super_file == nullptr && core_->breaker.wants_probe(now)) {
      core_->breaker.probe_ended(true, now);  // read-only: the next load tells
    }
    return;
  }
  if (!core_->breaker.wants_probe(now) && !core_->write_breaker.wants_probe(now)) return;
  is_probing_ = true;
  if (core_->breaker.is_open()) core_->breaker.probe_begins();
  if (core_->write_breaker.is_open()) core_->write_breaker.probe_begins();
  SuperBlock next = core_->super;
  next.generation += 1;
  next.changed_s = core_->now_s();
  probe_block_ = std::make_shared<AlignedBytes>(2 * kBlock);
  encode_super(next, probe_block_->first(kBlock));
  core_->io->submit({
      .kind = IoRequest::Kind::kRead,
      .file = core_->super_file,
      .offset = 0,
      .buffer = probe_block_->span().subspan(static_cast<std::size_t>(kBlock)),
      .keep = probe_block_,
      .done =
          [this, next](const IoEnd& read) {
            if (read.error != 0 || !core_->is_prompt(read)) {
              probed(false);
              return;
            }
            core_->io->submit({
                .kind = IoRequest::Kind::kWrite,
                .file = core_->super_file,
                .offset = super_offset(next.generation),
                .buffer = probe_block_->first(kBlock),
                .keep = probe_block_,
                .done =
                    [this, next](const IoEnd& written) {
                      if (written.error == 0) core_->super = next;
                      probed(written.error == 0 && core_->is_prompt(written));
                    },
            });
          },
  });
}

void StoreThread::probed(bool is_well) {
  is_probing_ = false;
  const std::int64_t now = core_->now_ns();
  core_->breaker.probe_ended(is_well, now);
  core_->write_breaker.probe_ended(is_well, now);
  if (is_well) core_->count([](StoreStatus& counts) { counts.trouble.clear(); });
}

tl::unexpected<Error> StoreThread::out_of_service() const {
  if (!core_->away.empty()) return fail(Code::kUnavailable, "{}", core_->away);
  return fail(Code::kUnavailable, "{}: out of service for writing", core_->config.folder);
}

// --- what others do to the folder

void StoreThread::folder_seen(const std::string& trouble) {
  if (trouble == core_->away) return;
  core_->away = trouble;
  core_->count([&](StoreStatus& counts) { counts.trouble = trouble; });
  if (trouble.empty()) {
    log_info("kvstore {}: the folder is back, and in service", core_->config.folder);
  } else {
    log_warn("kvstore cause=folder {}", trouble);
  }
}

// The listing may be older than a segment's file: only what cannot be opened either is gone.
void StoreThread::names_seen(const std::vector<std::string>& names) {
  std::set<SegmentId> there;
  for (const std::string& name : names)
    if (const auto id = segment_of(name)) there.insert(*id);
  std::vector<SegmentId> gone;
  for (const auto& [id, segment] : core_->segments.all()) {
    if (segment.is_dropped || there.contains(id)) continue;
    const auto file = core_->files.open_blocks(core_->segments.path(id), OpenMode::kRead);
    if (!file && file.error().code == Code::kNotFound) gone.push_back(id);
  }
  for (const SegmentId id : gone) core_->lose_segment(id, "it was deleted; what it held is gone");
}

void StoreThread::answer_questions() {
  std::erase_if(questions_, [](const std::shared_ptr<Question>& question) {
    std::optional<Result<std::int64_t>> answer = question->step();
    if (!answer) return false;
    question->give(std::move(*answer));
    return true;
  });
}

// Gauges, gates, and the engine thread's bell.
void StoreThread::publish() {
  core_->sync_gates();
  reader_.publish();
  core_->state->other_bytes.store(core_->other_bytes(), std::memory_order_relaxed);
  if (core_->segments_max() != segments_max_) {
    segments_max_ = core_->segments_max();
    const MutexLock lock(core_->state->mu);
    core_->state->catalog.set_bytes_max(segments_max_);
  }
  if (!reader_.take_news()) return;
  const MutexLock lock(core_->state->notify_mu);
  if (core_->state->notify) core_->state->notify();
}

int StoreThread::timeout_ms() {
  if (reclaimer_.is_enforcing()) return 0;
  std::int64_t wait = std::int64_t{kTurnMs} * 1'000'000;
  const std::int64_t now = core_->now_ns();
  for (const std::int64_t event : {reader_.next_event_ns(), writer_.next_event_ns()}) {
    if (event >= 0) wait = std::min(wait, event - now);
  }
  return static_cast<int>(std::max<std::int64_t>(0, (wait + 999'999) / 1'000'000));
}

// --- questions of other threads

Result<std::int64_t> StoreThread::ask(std::function<std::optional<Result<std::int64_t>>()> step) {
  const auto question = std::make_shared<Question>();
  question->step = std::move(step);
  const bool is_posted =
      post([question](StoreThread& self) { self.questions_.push_back(question); });
  if (!is_posted) return fail(Code::kUnavailable, "{}: the store is closing", core_->config.folder);
  return question->wait();
}

Result<> StoreThread::flush() {
  struct Progress {
    bool has_begun = false;
    std::uint64_t writes = 0, round = 0;
    std::vector<Place> puts;
  };
  const auto progress = std::make_shared<Progress>();
  TRY(ask([this, progress]() -> std::optional<Result<std::int64_t>> {
    if (core_->config.read_only) return Result<std::int64_t>(0);
    if (core_->is_out() || core_->state->writes_out.load(std::memory_order_relaxed)) {
      return Result<std::int64_t>(out_of_service());
    }
    if (!std::exchange(progress->has_begun, true)) progress->writes = writer_.added();
    if (progress->round == 0) {
      if (writer_.finished() < progress->writes) return std::nullopt;
      progress->round = checkpointer_.next_round();
      progress->puts = core_->last_puts();
      core_->wants_round = true;
    }
    if (checkpointer_.finished_round() >= progress->round && checkpointer_.is_idle()) {
      // A round leaves out what lies behind a write under way, as of a copy.
      const auto is_there = [&](const Place& put) { return core_->is_journaled(put); };
      if (std::ranges::all_of(progress->puts, is_there)) return Result<std::int64_t>(0);
      progress->round = checkpointer_.next_round();
    }
    if (checkpointer_.failed_round() >= progress->round) {
      return Result<std::int64_t>(
          fail(Code::kIo, "{}: the disk refuses to keep it", core_->config.folder)
      );
    }
    core_->wants_round = true;
    return std::nullopt;
  }));
  return {};
}

// Out of the index, and the key destroyed, in one turn, when nothing is being copied.
Result<> StoreThread::forget_tenant(const std::string& tenant, Traces& traces) {
  std::set<SpaceId> spaces;
  for (SpaceId id = 0; id < core_->spaces->count(); ++id) {
    if (core_->spaces->spec(id).tenant != tenant) continue;
    spaces.insert(id);
    traces.spaces.insert(core_->spaces->digest(id));
  }
  // Those that an erasure which was cut off has overwritten already have no header that tells them.
  for (const auto& [id, segment] : core_->segments.all()) {
    const MutexLock lock(core_->state->mu);
    for (const Entry& entry : core_->state->catalog.records_of(id)) {
      if (spaces.contains(entry.facts.space)) {
        traces.indexed.push_back({entry.facts.key, entry.place});
      }
    }
  }
  {
    const MutexLock lock(core_->state->mu);
    (void)core_->state->catalog.drop_tenant(tenant);
  }
  traces.before = core_->next_sequence();
  if (core_->cipher != nullptr) return core_->cipher->drop_tenant(tenant);
  TRY(erase_tenant_key(core_->config.folder, tenant, core_->files));
  return {};
}

// The index is written without the records once they are overwritten, and spaces.json without the
// tenant at the very end: whatever cuts this off, the tenant is still known, and asking again
// finishes it.
Result<std::int64_t> StoreThread::drop_tenant(const std::string& tenant) {
  if (core_->config.read_only) {
    return fail(Code::kUnavailable, "{}: opened read-only", core_->config.folder);
  }
  using Step = std::optional<Result<std::int64_t>>;
  const auto step_of = [](const Result<>& done) {
    return done ? Result<std::int64_t>(0) : tl::unexpected<Error>(done.error());
  };
  TRY(flush());  // what was offered is on the disk, and can be found there
  Traces traces;
  std::uint64_t writes = 0;
  TRY(ask([&]() -> Step {
    core_->holds_reclaim = !reclaimer_.is_idle();
    if (core_->holds_reclaim) return std::nullopt;
    writes = writer_.added();
    return step_of(forget_tenant(tenant, traces));
  }));
  TRY(ask([&]() -> Step {
    if (writer_.finished() < writes) return std::nullopt;
    return Result<std::int64_t>(0);
  }));
  const auto erased = TRY(erase_everywhere(traces));
  TRY(ask([&]() -> Step {
    std::set<std::pair<SegmentId, std::int64_t>> noted;
    for (const Trace& trace : erased) {
      note_erased(trace);
      noted.emplace(trace.place.segment, trace.place.offset);
    }
    for (const Trace& trace : traces.indexed) {
      if (!noted.contains({trace.place.segment, trace.place.offset})) note_erased(trace);
    }
    core_->wants_round = true;
    return Result<std::int64_t>(0);
  }));
  TRY(flush());
  TRY(ask([&]() -> Step { return step_of(core_->spaces->drop_tenant(tenant)); }));
  std::int64_t bytes = 0;
  for (const Trace& trace : erased) bytes += trace.place.bytes;
  return bytes;
}

// On the thread that asks: it takes as long as the disk takes.
Result<std::vector<Trace>> StoreThread::erase_everywhere(const Traces& traces) const {
  std::vector<Trace> out;
  if (traces.spaces.empty()) return out;
  for (const std::string& name : TRY(core_->files.list(core_->config.folder))) {
    const auto segment = segment_of(name);
    if (!segment) continue;
    if (is_stopping()) {
      return fail(Code::kUnavailable, "{}: the store is closing", core_->config.folder);
    }
    auto erased = erase_traces(core_->files, core_->config.folder + "/" + name, *segment, traces);
    if (!erased && erased.error().code == Code::kNotFound) continue;
    if (!erased) return erased;
    out.insert(out.end(), erased->begin(), erased->end());
  }
  return out;
}

void StoreThread::note_erased(const Trace& trace) { core_->note_erased(trace.key, trace.place); }

Result<std::int64_t> StoreThread::collect() {
  const auto before = std::make_shared<std::int64_t>(-1);
  const auto has_expired = std::make_shared<bool>(false);
  return ask([this, before, has_expired]() -> std::optional<Result<std::int64_t>> {
    if (core_->config.read_only) return Result<std::int64_t>(0);
    if (core_->is_out()) return Result<std::int64_t>(out_of_service());
    if (*before < 0) {
      *before = core_->folder_bytes();
      reclaimer_.enforce_quotas();
    }
    if (reclaimer_.is_enforcing()) return std::nullopt;
    if (!std::exchange(*has_expired, true)) reclaimer_.expire();
    const bool is_over = reclaimer_.is_idle() && !reclaimer_.wants_more();
    if (!is_over || core_->awaits_removal()) return std::nullopt;
    return Result<std::int64_t>(std::max<std::int64_t>(0, *before - core_->folder_bytes()));
  });
}

}  // namespace artery::kvstore
