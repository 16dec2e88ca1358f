#pragma once
// Loads a model in a thread of its own, so that the main thread can wait for signals meanwhile, and
// hands it to what answers requests.

#include <functional>
#include <string>
#include <thread>

#include "base/result.h"
#include "cli/serving.h"
#include "codec/stream/output_parser.h"
#include "engine/engine.h"
#include "server/server.h"

namespace artery::cli {

// What wants the model. All of it outlives the loader and is called from the loader's thread.
struct LoadTarget {
  std::function<void(double share)> on_progress;  // may be empty
  engine::Observer observer;
  std::function<void(server::Serving)> attach;
};

class ServingLoader {
 public:
  // `name`: of the model, as answers show it. Begins at once.
  ServingLoader(ServingWish wish, codec::ParserChoice parsers, std::string name, LoadTarget target);
  ~ServingLoader();
  ServingLoader(const ServingLoader&) = delete;
  ServingLoader& operator=(const ServingLoader&) = delete;

  // Readable when the load has ended.
  int done_fd() const { return done_fd_; }
  // Waits for the thread to end; at once when done_fd() was readable.
  Result<LoadedModel>& result();

 private:
  void run(const ServingWish& wish, const std::string& name);

  const LoadTarget target_;
  const codec::ParserChoice parsers_;
  int done_fd_;
  Result<LoadedModel> result_ = fail(Code::kInternal, "not loaded yet");
  std::thread thread_;
};

}  // namespace artery::cli
