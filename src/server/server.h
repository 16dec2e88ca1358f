#pragma once
// The HTTP server's public header: what `cli` assembles. Owns the listening socket, the connection
// workers and the API handlers. The port opens before the model loads; until `attach` the API
// answers 503 with the load's progress. All methods may be called from any thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/api/convert.h"
#include "codec/prompt/chat_template.h"
#include "codec/stream/output_parser.h"
#include "codec/tokenizer.h"
#include "engine/engine.h"
#include "kvstore/types.h"
#include "server/api_key.h"

namespace artery::server {

struct Config {
  std::string host = "127.0.0.1";
  int port = 8000;               // 0: the system picks one
  int http_threads = 2;          // sockets
  int worker_threads = 2;        // JSON, templates, tokenizers: so that these never delay a socket
  std::string api_key;           // of one holder without limits; empty: none
  std::vector<ApiKey> api_keys;  // more of them
  bool insecure = false;         // allow a non-loopback host without a key
  std::string served_model_name;
  std::string root_path;
  std::vector<std::string> allowed_origins;  // CORS; empty: none
  std::string tls_cert_file, tls_key_file;   // PEM; both or none
  std::size_t body_bytes_max = 32u << 20;
  std::size_t header_bytes_max = 64u << 10;
  int connections_max = 1024;
  double header_timeout_s = 30;  // slow senders get 408
  double body_timeout_s = 120;
  double keep_alive_s = 75;
  double stall_timeout_s = 60;  // a client that takes no byte for this long is given up
  int sse_comment_s = 5;        // silence before a comment line
  int json_depth_max = 64;
  int stuck_s = 10;  // engine silent for longer: /health 503
  bool log_requests = true;
  bool metrics_compat_vllm = false;
  std::optional<std::uint64_t> seed;  // of requests that name none; empty: a new one for each
  // Life of what requests leave in the KV store that ask for none; empty: by what they look like.
  std::optional<kvstore::TtlClass> cache_ttl = {};
  // Answers of the Responses API that clients come back to: an SQLite file, empty for memory only.
  std::string responses_file;
  std::int64_t responses_ttl_s = 30 * 86400;
  std::int64_t responses_bytes_max = std::int64_t{256} << 20;
  std::string version;  // for /version
};

// What the server answers with, once the model is loaded.
struct Serving {
  std::shared_ptr<engine::Engine> engine;
  std::shared_ptr<const codec::Tokenizer> tokenizer;
  std::shared_ptr<const codec::ChatTemplate>
      chat_template;  // null: chat is refused, chat_template_error says why
  std::string chat_template_error;
  std::string model_name;          // as shown by /v1/models
  std::string system_fingerprint;  // weights digest + numerics id
  // How chat answers are read; null: everything is content.
  std::shared_ptr<const codec::OutputFormat> output_format = nullptr;
  // Chats are written and read as DeepSeek's own encoding does it (codec/deepseek), without a
  // template and an output format.
  std::optional<codec::api::ModelVersion> deepseek = std::nullopt;
};

class Server {
 public:
  // Binds and starts accepting. Certificate or key unusable: kBadFile. Port taken: kIo with
  // address, port and the flag to change it; a non-loopback host without key or `insecure`:
  // kInvalidArgument.
  static Result<std::unique_ptr<Server>> open(Config config, const Clock& clock = system_clock());
  virtual ~Server() = default;

  virtual int port() const = 0;
  // Progress of the load in [0, 1], shown by /health while loading.
  virtual void set_load_progress(double fraction) = 0;
  virtual void attach(Serving serving) = 0;
  // Observer for engine::make_engine, so that step metrics reach /metrics.
  virtual engine::Observer observer() = 0;
  // In place of Config::api_keys, from now on.
  virtual void set_api_keys(const std::vector<ApiKey>& keys) = 0;
  // Reads certificate and key again; after an error the old ones stay in use.
  virtual Result<> reload_tls() = 0;
  // /ready turns 503, new work is refused, open streams go on.
  virtual void begin_drain() = 0;
  // Waits until no answer is under way, at most `timeout_s`; returns how many still are. An engine
  // that has ended its requests says less: their last tokens may still be on their way to clients.
  virtual int drain(double timeout_s) = 0;
  // Ends answers under way with an error, closes connections and joins the workers. Idempotent.
  virtual void stop() = 0;
};

}  // namespace artery::server
