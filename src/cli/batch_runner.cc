#include "cli/batch_runner.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace artery::cli {
namespace {

constexpr int kTurnMs = 100;
constexpr int kServed = 200, kFull = 429;

}  // namespace

struct BatchRunner::Inbox {
  Inbox() : ready_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Inbox() { close(ready_fd); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  struct Answer {
    std::uint64_t number = 0;
    server::OfflineAnswer answer;
  };
  void put(std::uint64_t number, server::OfflineAnswer answer) {
    {
      const MutexLock lock(mu);
      answers.push_back({number, std::move(answer)});
    }
    const std::uint64_t one = 1;
    if (write(ready_fd, &one, sizeof one) != sizeof one) std::abort();
  }
  std::vector<Answer> take() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(ready_fd, &count, sizeof count);
    const MutexLock lock(mu);
    return std::exchange(answers, {});
  }

  const int ready_fd;
  Mutex mu;
  std::vector<Answer> answers GUARDED_BY(mu);
};

BatchRunner::BatchRunner(
    server::OfflineApi& api,
    LineSource& source,
    BatchOutput& output,
    SignalWatch& signals,
    int requests_max
)
    : api_(api),
      source_(source),
      output_(output),
      signals_(signals),
      requests_max_(static_cast<std::size_t>(requests_max)),
      inbox_(std::make_shared<Inbox>()) {}

BatchRunner::~BatchRunner() = default;

bool BatchRunner::has_room() const { return in_work_.size() + again_.size() < requests_max_; }

Result<> BatchRunner::refuse(const BatchRefusal& refusal, std::int64_t number) {
  ++counts_.failed;
  return output_.write(batch_refusal_line(refusal, number));
}

void BatchRunner::send(BatchRequest request) {
  const std::uint64_t number = ++last_number_;
  const BatchRequest& kept = in_work_.emplace(number, std::move(request)).first->second;
  api_.post(kept.path, kept.body, [inbox = inbox_, number](server::OfflineAnswer answer) {
    inbox->put(number, std::move(answer));
  });
}

Result<> BatchRunner::take(const SourceLine& line) {
  if (line.is_too_long) {
    ++counts_.lines;
    return refuse({{}, "line_too_long", "longer than --max-body-bytes"}, line.number);
  }
  if (line.text.find_first_not_of(" \t\r") == std::string::npos) return {};
  ++counts_.lines;
  auto request = read_batch_line(line.text);
  if (!request) return refuse(request.error(), line.number);
  if (!seen_.insert(request->custom_id).second) {
    return refuse(
        {request->custom_id, "duplicate_custom_id", "an earlier line has this custom_id"},
        line.number
    );
  }
  if (output_.is_answered(request->custom_id)) {
    ++counts_.skipped;
    return {};
  }
  send(std::move(*request));
  return {};
}

// As much as there is room for and has come.
Result<> BatchRunner::feed() {
  while (has_room()) {
    if (const auto line = source_.next()) {
      TRY(take(*line));
    } else if (!TRY(source_.fill())) {
      return {};
    }
  }
  return {};
}

Result<> BatchRunner::take_answers() {
  bool any_ended = false;
  for (Inbox::Answer& one : inbox_->take()) {
    auto request = in_work_.extract(one.number);
    // Others that end make room; with none left the refusal is the answer.
    if (one.answer.status == kFull && !in_work_.empty()) {
      again_.push_back(std::move(request.mapped()));
      continue;
    }
    any_ended = true;
    ++(one.answer.status == kServed ? counts_.answered : counts_.failed);
    TRY(output_.write(batch_answer_line(request.mapped().custom_id, one.answer)));
  }
  if (any_ended || in_work_.empty()) {
    for (BatchRequest& request : std::exchange(again_, {})) send(std::move(request));
  }
  return {};
}

Result<std::optional<int>> BatchRunner::run(const std::function<void(const BatchCounts&)>& on_turn
) {
  while (true) {
    TRY(take_answers());
    TRY(feed());
    on_turn(counts_);
    if (source_.at_end() && in_work_.empty() && again_.empty()) return std::optional<int>();
    // Where more could be read, that is what is waited for: answers wait a turn at most.
    const bool wants_lines = has_room() && !source_.at_end();
    const auto signal = signals_.wait(kTurnMs, wants_lines ? source_.fd() : inbox_->ready_fd);
    if (signal) return signal;
  }
}

}  // namespace artery::cli
