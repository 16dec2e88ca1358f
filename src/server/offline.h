#pragma once
// The API without sockets: requests as values in, answers as values out, by the handlers that the
// server has. For batches. All methods but open() and stop() from any thread.

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "server/server.h"

namespace artery::server {

struct OfflineAnswer {
  int status = 0;
  std::string request_id;  // as in x-request-id
  std::string body;        // JSON; of a request that asked for a stream its events
};

class OfflineApi {
 public:
  // Config's addresses, keys and limits of connections do not matter. kIo, kBadFile for the file of
  // stored responses.
  static Result<std::unique_ptr<OfflineApi>> open(
      Config config, const Clock& clock = system_clock()
  );
  virtual ~OfflineApi() = default;

  // As Server's.
  virtual void attach(Serving serving) = 0;
  virtual engine::Observer observer() = 0;
  // POST `body` to `path`. `on_answer` is called once, from any thread, maybe before this returns;
  // it must not block. Nothing bounds how many wait but the engine's inbox (429).
  virtual void post(
      std::string path, std::string body, std::function<void(OfflineAnswer answer)> on_answer
  ) = 0;
  // What is under way is answered with an error, then the workers end. Idempotent.
  virtual void stop() = 0;
};

}  // namespace artery::server
