// `artery serve`: the port opens first, then a second thread loads the model while the main thread
// waits for signals.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "cli/key_file.h"
#include "cli/kv_flags.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/serving_flags.h"
#include "cli/serving_loader.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "server/server.h"

namespace artery::cli {
namespace {

Flag timeout_flag(std::string_view name, std::string_view fallback, std::string_view help) {
  return {
      .name = name,
      .kind = FlagKind::kNumber,
      .fallback = fallback,
      .help = help,
      .value_name = "S",
      .min = 0.1,
      .max = 86400
  };
}

std::vector<Flag> http_flags() {
  using K = FlagKind;
  return {
      {.name = "host", .fallback = "127.0.0.1", .help = "address to listen on", .value_name = "ADDR"
      },
      {.name = "port",
       .kind = K::kInteger,
       .fallback = "8000",
       .help = "port to listen on; 0: a free one, printed at start",
       .value_name = "PORT",
       .min = 0,
       .max = 65535},
      {.name = "api-key", .help = "key that clients must send", .value_name = "KEY", .secret = true
      },
      {.name = "api-keys",
       .help = "TOML file of [[key]] tables: name, key or key_sha256, and optionally tenant, "
               "max_concurrent, requests_per_minute, tokens_per_minute, kv_quota, priority, admin; "
               "read "
               "again on SIGHUP (docs/serving.md has an example)",
       .value_name = "FILE"},
      {.name = "ssl-certfile",
       .help = "certificate chain in PEM form: serve https; read again on SIGHUP",
       .value_name = "FILE"},
      {.name = "ssl-keyfile", .help = "its private key in PEM form", .value_name = "FILE"},
      {.name = "insecure",
       .kind = K::kSwitch,
       .fallback = "false",
       .help = "allow a host beyond loopback without a key"},
      {.name = "served-model-name",
       .help = "name shown by /v1/models; empty: the file's",
       .value_name = "NAME"},
      {.name = "shutdown-timeout",
       .kind = K::kNumber,
       .fallback = "30",
       .help = "seconds that running requests get after SIGTERM or Ctrl-C; a second signal ends at "
               "once",
       .value_name = "S",
       .min = 0,
       .max = 86400},
      {.name = "allowed-origins",
       .help = "browser origins for CORS, comma-separated, or *",
       .value_name = "LIST"},
      {.name = "root-path", .help = "path prefix that a proxy leaves on", .value_name = "PATH"},
      {.name = "http-threads",
       .kind = K::kInteger,
       .fallback = "2",
       .help = "connection workers",
       .value_name = "N",
       .min = 1,
       .max = 256},
  };
}

std::vector<Flag> limit_flags() {
  using K = FlagKind;
  return {
      {.name = "max-body-bytes",
       .kind = K::kBytes,
       .fallback = "32M",
       .help = "largest request body; more gets 413",
       .value_name = "SIZE"},
      {.name = "max-header-bytes",
       .kind = K::kBytes,
       .fallback = "64K",
       .help = "largest request line and headers together; more gets 431",
       .value_name = "SIZE"},
      {.name = "max-connections",
       .kind = K::kInteger,
       .fallback = "1024",
       .help = "connections open at once; more get 503",
       .value_name = "N",
       .min = 1,
       .max = 1e6},
      timeout_flag("header-timeout", "30", "seconds a client gets for its headers, then 408"),
      timeout_flag(
          "body-timeout", "120", "seconds for a body, and one more for each 64 KiB, then 408"
      ),
      timeout_flag("keep-alive-timeout", "75", "seconds an idle connection stays open"),
      timeout_flag(
          "stream-stall-timeout",
          "60",
          "seconds after which a client that reads nothing of its answer is given up"
      ),
  };
}

std::vector<Flag> report_flags() {
  using K = FlagKind;
  return {
      {.name = "disable-log-requests",
       .kind = K::kSwitch,
       .fallback = "false",
       .help = "no log line for each request"},
      {.name = "metrics-compat",
       .kind = K::kChoice,
       .fallback = "none",
       .help = "also export vLLM's metric names",
       .choices = "none|vllm"},
      log_level_flag("info"),
  };
}

std::vector<Flag> serve_flags() {
  std::vector<Flag> flags = {model_flag()};
  for (const std::vector<Flag>& group :
       {http_flags(),
        limit_flags(),
        report_flags(),
        engine_flags(),
        kv_flags(),
        parser_flags(),
        responses_flags()})
    flags.insert(flags.end(), group.begin(), group.end());
  return flags;
}

void set_limits(const Options& options, server::Config& config) {
  config.body_bytes_max = static_cast<std::size_t>(options.integer("max-body-bytes"));
  config.header_bytes_max = static_cast<std::size_t>(options.integer("max-header-bytes"));
  config.connections_max = static_cast<int>(options.integer("max-connections"));
  config.header_timeout_s = options.number("header-timeout");
  config.body_timeout_s = options.number("body-timeout");
  config.keep_alive_s = options.number("keep-alive-timeout");
  config.stall_timeout_s = options.number("stream-stall-timeout");
}

Result<server::Config> server_config(
    const Options& options, const std::string& model_path, const KvWish& kv
) {
  server::Config config;
  set_limits(options, config);
  config.host = options.text("host");
  config.port = static_cast<int>(options.integer("port"));
  config.http_threads = static_cast<int>(options.integer("http-threads"));
  config.api_key = options.text("api-key");
  if (options.is_set("api-keys")) config.api_keys = TRY(read_key_file(options.text("api-keys")));
  config.tls_cert_file = options.text("ssl-certfile");
  config.tls_key_file = options.text("ssl-keyfile");
  if (config.tls_cert_file.empty() != config.tls_key_file.empty()) {
    return fail_field("--ssl-certfile", "--ssl-certfile and --ssl-keyfile go together");
  }
  config.insecure = options.on("insecure");
  config.served_model_name = options.text("served-model-name");
  if (config.served_model_name.empty()) config.served_model_name = file_stem(model_path);
  config.root_path = options.text("root-path");
  config.allowed_origins = options.list("allowed-origins");
  config.log_requests = !options.on("disable-log-requests");
  config.metrics_compat_vllm = options.text("metrics-compat") == "vllm";
  config.cache_ttl = kv.ttl;
  set_answers(options, config);
  config.version = version_number();
  return config;
}

// A descriptor a connection, and some for files: the soft limit is often 1024.
void raise_open_files(int connections_max) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(connections_max) + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted) {
    log_warn(
        "this process may open {} files, which is less than --max-connections {} needs; raise "
        "ulimit -n or lower the flag",
        limit.rlim_cur,
        connections_max
    );
  }
}

// A pipe (`--api-keys <(...)`) can be read at the start only: here it would wait for a writer.
Result<std::vector<server::ApiKey>> read_keys_again(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_fifo(path, unknown)) {
    return fail(Code::kBadFile, "--api-keys {} is a pipe, which cannot be read again", path);
  }
  return read_key_file(path);
}

// SIGHUP: keys and certificate from their files. What cannot be read leaves the old one in use.
void reload(const Options& options, server::Server& server, kvstore::DiskStore* store) {
  if (options.is_set("api-keys")) {
    auto keys = read_keys_again(options.text("api-keys"));
    if (keys) {
      server.set_api_keys(*keys);
      if (store != nullptr) store->set_quotas(kv_quotas(*keys));
      log_info("api keys reloaded count={}", keys->size());
    } else {
      log_error("SIGHUP: the old API keys stay in use: {}", keys.error().message);
    }
  }
  if (options.is_set("ssl-certfile")) {
    const auto reloaded = server.reload_tls();
    if (reloaded) {
      log_info("certificate reloaded file={}", options.text("ssl-certfile"));
    } else {
      log_error("SIGHUP: the old certificate stays in use: {}", reloaded.error().message);
    }
  }
}

// Waits for a signal that ends the server, reloading at others; nullopt when `other_fd` is first.
// `store`: null while there is none.
std::optional<int> wait_for_end(
    SignalWatch& signals,
    const Options& options,
    server::Server& server,
    kvstore::DiskStore* store,
    int other_fd = -1
) {
  for (;;) {
    const auto signal = signals.wait(-1, other_fd);
    if (signal != SIGHUP) return signal;
    reload(options, server, store);
  }
}

int drain(
    int signal,
    server::Server& server,
    engine::Engine& engine,
    SignalWatch& signals,
    double timeout_s
) {
  log_info("signal {}: draining for up to {} s, a second signal ends at once", signal, timeout_s);
  server.begin_drain();
  engine.begin_drain();
  const Clock& clock = system_clock();
  const double end = clock.seconds() + timeout_s;
  constexpr double kTurnSeconds = 0.05;
  // The engine's end is not the answers': a request's last tokens may be on their way, or wait for
  // a client that reads slowly.
  while (const int left = server.drain(kTurnSeconds)) {
    if (const auto again = signals.wait(0); again && *again != SIGHUP) leave_now(*again);
    if (clock.seconds() < end) continue;
    log_warn("shutdown timeout: {} requests are cut off", left);
    break;
  }
  server.stop();
  log_info("stopped");
  return 128 + signal;
}

Result<int> run_serve(const Options& options) {
  const std::string model_path = TRY(options.require("model"));
  TRY(codec::check_parser_choice(parser_choice(options)));
  ServingWish wish = TRY(serving_wish(options, model_path));
  wish.engine.inbox_max = static_cast<int>(options.integer("max-queued-requests"));
  set_log_level(log_level_of(options));
  const bool reloads = options.is_set("api-keys") || options.is_set("ssl-certfile");
  SignalWatch signals = TRY(SignalWatch::open(reloads));
  const Clock& clock = system_clock();
  const double start = clock.seconds();
  server::Config config = TRY(server_config(options, model_path, wish.kv));
  wish.kv.store.quotas = kv_quotas(config.api_keys);
  raise_open_files(config.connections_max);
  const std::string host = config.host, name = config.served_model_name;
  std::unique_ptr<server::Server> server = TRY(server::Server::open(std::move(config), clock));
  const bool is_v6 = host.find(':') != std::string::npos;
  // At every --log-level: with --port 0 nothing else tells the port.
  log_write(
      LogLevel::kInfo,
      fmt::format(
          "listening on {}://{}{}{}:{} (loading {})",
          options.is_set("ssl-certfile") ? "https" : "http",
          is_v6 ? "[" : "",
          host,
          is_v6 ? "]" : "",
          server->port(),
          model_path
      )
  );
  ServingLoader loader(
      std::move(wish),
      parser_choice(options),
      name,
      {[&](double share) { server->set_load_progress(share); },
       server->observer(),
       [&](server::Serving serving) { server->attach(std::move(serving)); }}
  );
  if (const auto signal = wait_for_end(signals, options, *server, nullptr, loader.done_fd())) {
    leave_now(*signal);
  }
  if (!loader.result()) {
    server->stop();
    return tl::unexpected<Error>(loader.result().error());
  }
  log_info("ready model={} seconds={:.2f}", name, clock.seconds() - start);
  LoadedModel& loaded = *loader.result();
  std::optional<int> signal;
  while (!signal) signal = wait_for_end(signals, options, *server, loaded.store.get());
  const int code =
      drain(*signal, *server, *loaded.engine, signals, options.number("shutdown-timeout"));
  server.reset();  // it shares the engine, whose thread must end before the backend goes
  return code;
}

}  // namespace

Verb serve_verb() {
  return {
      "serve",
      "the server: OpenAI's HTTP API on your model",
      "artery serve model.gguf --port 8000\n"
      "artery serve model.gguf --host 0.0.0.0 --api-key secret -c 8192\n"
      "artery serve model.gguf --host 0.0.0.0 --api-keys keys.toml --ssl-certfile cert.pem "
      "--ssl-keyfile key.pem",
      serve_flags(),
      run_serve,
  };
}

}  // namespace artery::cli
