#pragma once
// The one thread that reads and writes a store's folder: takes what the engine thread and the
// maintenance verbs ask for from the inbox, and turns the parts (Reader, Writer, Checkpointer,
// Reclaimer) round until it is told to stop. At the end it writes what is queued, journals it and
// marks the folder as closed in order; what hangs then is left to a thread of its own.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kvstore/checkpointer.h"
#include "kvstore/eraser.h"
#include "kvstore/reader.h"
#include "kvstore/reclaimer.h"
#include "kvstore/store_core.h"
#include "kvstore/writer.h"

namespace artery::kvstore {

class StoreThread {
 public:
  explicit StoreThread(std::unique_ptr<StoreCore> core);
  ~StoreThread();  // stops; waits for writes, but not for what hangs

  void start();
  // What the destructor does, but that questions of other threads may still come: they get
  // kUnavailable.
  void stop();
  // Any thread: `job` runs on the store thread, in order. False: it is stopping.
  bool post(std::function<void(StoreThread&)> job);

  void wake() { core_->io->wake(); }

  // --- on the store thread.
  Reader& reader() { return reader_; }
  Writer& writer() { return writer_; }
  Reclaimer& reclaimer() { return reclaimer_; }
  StoreCore& core() { return *core_; }
  // From FolderWatch: the folder is not ours any more, and why, or is again (empty).
  void folder_seen(const std::string& trouble);
  // Files in the folder: segments that are not among them were deleted.
  void names_seen(const std::vector<std::string>& names);

  // --- any other thread: these wait.
  // Everything offered before is on the disk, synced and journaled.
  Result<> flush();
  Result<std::int64_t> drop_tenant(const std::string& tenant);  // bytes freed
  // The bytes that came back.
  Result<std::int64_t> collect();
  // Runs `step` at each turn until it gives an answer. kUnavailable: the store is stopping.
  Result<std::int64_t> ask(std::function<std::optional<Result<std::int64_t>>()> step);

 private:
  struct Question;

  void main();
  bool is_stopping() const;
  void turn();
  void run_inbox();
  void probe();
  void probed(bool is_well);
  Result<> forget_tenant(const std::string& tenant, Traces& traces);
  Result<std::vector<Trace>> erase_everywhere(const Traces& traces) const;
  void note_erased(const Trace& trace);
  tl::unexpected<Error> out_of_service() const;
  void answer_questions();
  void give_up_questions();
  void publish();
  int timeout_ms();
  bool is_drained();
  void close();

  const std::unique_ptr<StoreCore> core_;
  Reader reader_;
  Writer writer_;
  Checkpointer checkpointer_;
  Reclaimer reclaimer_;
  std::vector<std::shared_ptr<Question>> questions_;
  bool is_probing_ = false;
  std::int64_t segments_max_ = -1;  // as the catalog knows it
  std::shared_ptr<AlignedBytes> probe_block_;
  mutable Mutex mu_;
  bool is_stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace artery::kvstore
