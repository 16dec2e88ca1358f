#pragma once
// A batch in work: lines to requests, many at once, answers to lines in the order they come. All of
// it on the main thread but for the answering, which the API's own threads do.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"
#include "base/result.h"
#include "cli/batch_line.h"
#include "cli/batch_output.h"
#include "cli/line_source.h"
#include "cli/signals.h"
#include "server/offline.h"

namespace artery::cli {

struct BatchCounts {
  std::int64_t lines = 0;     // read, blank ones left out
  std::int64_t answered = 0;  // with status 200
  std::int64_t failed = 0;    // with another status, or no request at all
  std::int64_t skipped = 0;   // answered by a run before
  std::int64_t done() const { return answered + failed + skipped; }
};

class BatchRunner {
 public:
  // All outlive it. `requests_max`: in work at once.
  BatchRunner(
      server::OfflineApi& api,
      LineSource& source,
      BatchOutput& output,
      SignalWatch& signals,
      int requests_max
  );
  ~BatchRunner();
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Until all lines are answered (nullopt) or a signal comes (its number; what is in work then is
  // not written). `on_turn` is called between, several times a second. kIo, kOutOfMemory.
  Result<std::optional<int>> run(const std::function<void(const BatchCounts&)>& on_turn);
  const BatchCounts& counts() const { return counts_; }

 private:
  struct Inbox;  // shared with answers that come after this is gone
  bool has_room() const;
  Result<> feed();
  Result<> take(const SourceLine& line);
  void send(BatchRequest request);
  Result<> take_answers();
  Result<> refuse(const BatchRefusal& refusal, std::int64_t number);

  server::OfflineApi& api_;
  LineSource& source_;
  BatchOutput& output_;
  SignalWatch& signals_;
  const std::size_t requests_max_;
  const std::shared_ptr<Inbox> inbox_;
  std::uint64_t last_number_ = 0;
  std::unordered_map<std::uint64_t, BatchRequest> in_work_;
  std::deque<BatchRequest> again_;  // refused because the engine was full
  std::unordered_set<std::string> seen_;
  BatchCounts counts_;
};

}  // namespace artery::cli
