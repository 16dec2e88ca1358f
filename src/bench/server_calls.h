#pragma once
// Single calls to the server under test before a run: its models, its tokenizer, its health. Each
// blocks for at most its timeout. One thread.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load_client.h"
#include "bench/workload.h"

namespace artery::bench {

struct ServerReply {
  int status = 0;
  std::string body;
};

class ServerCalls {
 public:
  ServerCalls(ServerAddress server, std::string api_key);
  ~ServerCalls();

  // kIo: no connection, or it broke; kDeadlineExceeded. Keeps the connection for the next call.
  Result<ServerReply> call(std::string_view method, std::string_view path, std::string_view body);
  // The first id of /v1/models.
  Result<std::string> first_model();
  // A counter that asks POST /tokenize in the shapes of vLLM and llama.cpp at once; null when the
  // server has none.
  Result<std::unique_ptr<TokenCounter>> token_counter(const std::string& model);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace artery::bench
