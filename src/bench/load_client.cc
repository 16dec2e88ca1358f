#include "bench/load_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <ctime>
#include <deque>
#include <optional>
#include <utility>

#include "bench/sse_parser.h"
#include "bench/stream_event.h"

namespace artery::bench {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Gives each piece of a body to a function as it is read.
struct SinkBody {
  using value_type = std::function<void(std::string_view)>;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>&, value_type& sink) : sink_(sink) {}
    void init(const boost::optional<std::uint64_t>&, error_code& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, error_code& error) {
      std::size_t bytes = 0;
      for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers);
           ++at) {
        const asio::const_buffer part = *at;
        sink_(std::string_view(static_cast<const char*>(part.data()), part.size()));
        bytes += part.size();
      }
      error = {};
      return bytes;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& sink_;
  };
};

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A thousand streams need more descriptors than the usual soft limit.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What a stream of one answer has told so far.
class Answer {
 public:
  Answer(RequestRecord& record, double start_s) : record_(record), start_s_(start_s) {}

  // Chunks with tokens that came with these bytes.
  std::int64_t push(std::string_view bytes, int status, double now_s) {
    if (status != 200) {
      constexpr std::size_t kErrorBytes = 4096;
      body_ += bytes.substr(0, kErrorBytes - std::min(body_.size(), kErrorBytes));
      return 0;
    }
    std::int64_t tokens = 0;
    const bool fits = parser_.push(bytes, [&](std::string_view data) {
      if (data == "[DONE]")
        done_ = true;
      else
        tokens += take(read_stream_event(data), now_s);
    });
    if (!fits) fail("bad answer", "a line of the stream has no end");
    return tokens;
  }

  void fail(std::string kind, std::string text) {
    if (!record_.error_kind.empty()) return;
    record_.error_kind = std::move(kind);
    record_.error = std::move(text);
  }

  // The whole body was read.
  void finish(int status, double now_s) {
    if (status != 200)
      fail(fmt::format("http {}", status), error_text(body_));
    else if (!done_ && !finished_)
      fail("cut off", "the stream ended without a finish_reason");
    if (!record_.usage) record_.output_tokens = chunks_;
    // Text of all tokens held back to the end, or none at all: the end is all one can time.
    if (chunks_ == 0) record_.ttft_s = record_.latency_s = now_s - start_s_;
    record_.outcome = record_.error_kind.empty() ? Outcome::kOk : Outcome::kFailed;
  }

 private:
  std::int64_t take(const StreamEvent& event, double now_s) {
    if (!event.valid) {
      fail("bad answer", "an event that is not a JSON object");
      return 0;
    }
    if (!event.error.empty()) fail("error event", event.error);
    finished_ |= event.finished;
    if (event.prompt_tokens) record_.input_tokens = *event.prompt_tokens;
    if (event.cached_tokens) record_.cached_tokens = *event.cached_tokens;
    if (event.output_tokens) {
      record_.output_tokens = *event.output_tokens;
      record_.usage = true;
    }
    if (!event.token) return 0;
    const double at = now_s - start_s_;
    if (chunks_++ == 0)
      record_.ttft_s = at;
    else
      record_.gaps_s.push_back(static_cast<float>(at - record_.latency_s));
    record_.latency_s = at;
    return 1;
  }

  RequestRecord& record_;
  double start_s_;
  SseParser parser_;
  std::string body_;  // of an error
  std::int64_t chunks_ = 0;
  bool done_ = false, finished_ = false;
};

}  // namespace

// One TCP connection: carries one request after another.
struct Connection : std::enable_shared_from_this<Connection> {
  explicit Connection(asio::io_context& io) : socket(io) {}
  tcp::socket socket;
  boost::beast::flat_buffer buffer;
  std::optional<http::response_parser<SinkBody>> parser;
  std::optional<Answer> answer;
  std::string text;  // being sent
  std::size_t request = 0;
  double deadline_s = 0;
  bool fresh = true;  // carried no request before this one
  bool read_any = false;
  bool timed_out = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

struct LoadRun::State {
  State(LoadConfig load, const std::vector<WorkRequest>& work, const Clock& time)
      : config(std::move(load)), requests(work), clock(time) {}

  double now_s() const { return static_cast<double>(clock.monotonic_ns() - start_ns) * 1e-9; }
  std::int64_t limit() const {
    return config.max_concurrency > 0 ? config.max_concurrency : INT64_MAX;
  }

  void arrive();
  void dispatch();
  void begin(std::size_t request);
  void connect(const ConnectionPtr& connection);
  void send(const ConnectionPtr& connection);
  void read(const ConnectionPtr& connection);
  void broken(const ConnectionPtr& connection, const error_code& error, const char* where);
  void answered(const ConnectionPtr& connection);
  void ended(const ConnectionPtr& connection);
  void tick();
  void finish_if_done();
  void halt();

  LoadConfig config;
  const std::vector<WorkRequest>& requests;
  const Clock& clock;
  asio::io_context io{1};
  std::vector<tcp::endpoint> endpoints;
  asio::steady_timer arrival{io}, ticker{io};
  std::int64_t start_ns = 0;
  std::size_t next = 0;  // request that arrives next
  std::deque<std::size_t> due;
  std::vector<ConnectionPtr> active, idle;
  LoadResult result;
  double tick_due_s = 0;
  bool stopped = false;
  std::atomic<bool> stop_wanted{false};
  std::atomic<std::int64_t> done{0}, failed{0}, running{0}, chunks{0};
};

// Puts every request whose time has come in the queue, and sleeps until the next one's.
void LoadRun::State::arrive() {
  if (stopped) return;
  while (next < requests.size() && requests[next].arrival_s <= now_s()) due.push_back(next++);
  dispatch();
  if (next == requests.size()) return;
  arrival.expires_after(std::chrono::nanoseconds(
      static_cast<std::int64_t>((requests[next].arrival_s - now_s()) * 1e9)
  ));
  arrival.async_wait([this](const error_code& error) {
    if (!error) arrive();
  });
}

void LoadRun::State::dispatch() {
  while (!stopped && !due.empty() && static_cast<std::int64_t>(active.size()) < limit()) {
    const std::size_t request = due.front();
    due.pop_front();
    begin(request);
  }
  finish_if_done();
}

void LoadRun::State::begin(std::size_t request) {
  ConnectionPtr connection;
  if (idle.empty()) {
    connection = std::make_shared<Connection>(io);
  } else {
    connection = std::move(idle.back());
    idle.pop_back();
    connection->fresh = false;
  }
  const WorkRequest& work = requests[request];
  RequestRecord& record = result.records[request];
  record.due_s = work.arrival_s;
  record.input_tokens = work.input_tokens;
  record.asked_tokens = work.output_tokens;
  connection->request = request;
  connection->timed_out = false;
  connection->text =
      http_request(config.server, "POST", config.path, config.api_key, config.body(work));
  record.start_s = now_s();
  connection->deadline_s = record.start_s + config.timeout_s;
  active.push_back(connection);
  running = static_cast<std::int64_t>(active.size());
  if (connection->fresh)
    connect(connection);
  else
    send(connection);
}

void LoadRun::State::connect(const ConnectionPtr& connection) {
  asio::async_connect(
      connection->socket,
      endpoints,
      [this, connection](const error_code& error, const tcp::endpoint&) {
        if (error) return broken(connection, error, "connect");
        error_code ignored;
        connection->socket.set_option(tcp::no_delay(true), ignored);
        send(connection);
      }
  );
}

void LoadRun::State::send(const ConnectionPtr& connection) {
  RequestRecord& record = result.records[connection->request];
  connection->answer.emplace(record, record.start_s);
  connection->parser.emplace();
  connection->parser->body_limit(boost::none);
  connection->read_any = false;
  Connection* raw = connection.get();  // lives as long as its parser
  connection->parser->get().body() = [this, raw](std::string_view bytes) {
    raw->read_any = true;
    chunks += raw->answer->push(bytes, static_cast<int>(raw->parser->get().result_int()), now_s());
  };
  asio::async_write(
      connection->socket,
      asio::buffer(connection->text),
      [this, connection](const error_code& error, std::size_t) {
        // A server may answer and close before it has read all: the answer says why.
        if (error && error != asio::error::broken_pipe && error != asio::error::connection_reset)
          return broken(connection, error, "send");
        read(connection);
      }
  );
}

void LoadRun::State::read(const ConnectionPtr& connection) {
  http::async_read(
      connection->socket,
      connection->buffer,
      *connection->parser,
      [this, connection](const error_code& error, std::size_t) {
        if (error) return broken(connection, error, "read");
        answered(connection);
      }
  );
}

void LoadRun::State::broken(
    const ConnectionPtr& connection, const error_code& error, const char* where
) {
  if (stopped) return ended(connection);
  const bool reused = !connection->fresh && !connection->read_any && !connection->timed_out;
  error_code ignored;
  connection->socket.close(ignored);
  if (reused) {  // closed by the server between two requests: not its fault, not ours
    connection->fresh = true;
    connection->buffer.clear();
    connection->socket = tcp::socket(io);
    return connect(connection);
  }
  RequestRecord& record = result.records[connection->request];
  if (!connection->answer) connection->answer.emplace(record, record.start_s);
  if (connection->timed_out)
    connection->answer->fail("timeout", fmt::format("no end after {} s", config.timeout_s));
  else if (error == http::error::end_of_stream || error == http::error::partial_message)
    connection->answer->fail("cut off", "the server closed the connection");
  else
    connection->answer->fail(where, error.message());
  record.outcome = Outcome::kFailed;
  ended(connection);
}

void LoadRun::State::answered(const ConnectionPtr& connection) {
  connection->answer->finish(static_cast<int>(connection->parser->get().result_int()), now_s());
  if (connection->parser->keep_alive() && !stopped) {
    idle.push_back(connection);
  } else {
    error_code ignored;
    connection->socket.close(ignored);
  }
  ended(connection);
}

void LoadRun::State::ended(const ConnectionPtr& connection) {
  active.erase(std::find(active.begin(), active.end(), connection));
  running = static_cast<std::int64_t>(active.size());
  const Outcome outcome = result.records[connection->request].outcome;
  if (outcome == Outcome::kOk) ++done;
  if (outcome == Outcome::kFailed) ++failed;
  result.duration_s = now_s();
  // Through the queue: a refused connection must not end in a deep recursion.
  asio::post(io, [this] { dispatch(); });
}

void LoadRun::State::tick() {
  constexpr double kTickS = 0.05;
  const double now = now_s();
  if (tick_due_s > 0)
    result.client_lag_ms = std::max(result.client_lag_ms, (now - tick_due_s) * 1e3);
  if (stop_wanted) return halt();
  for (const ConnectionPtr& connection : active) {
    if (now < connection->deadline_s || connection->timed_out) continue;
    connection->timed_out = true;
    error_code ignored;
    connection->socket.close(ignored);
  }
  tick_due_s = now + kTickS;
  ticker.expires_after(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(kTickS))
  );
  ticker.async_wait([this](const error_code& error) {
    if (!error && !stopped) tick();
  });
}

void LoadRun::State::finish_if_done() {
  if (next < requests.size() || !due.empty() || !active.empty()) return;
  halt();
}

void LoadRun::State::halt() {
  if (stopped) return;
  stopped = true;
  if (!active.empty()) result.duration_s = now_s();
  arrival.cancel();
  ticker.cancel();
  error_code ignored;
  for (const ConnectionPtr& connection : active) connection->socket.close(ignored);
  for (const ConnectionPtr& connection : idle) connection->socket.close(ignored);
  idle.clear();
}

LoadRun::LoadRun(LoadConfig config, const std::vector<WorkRequest>& requests, const Clock& clock)
    : state_(std::make_shared<State>(std::move(config), requests, clock)) {}

LoadRun::~LoadRun() = default;

Result<LoadResult> LoadRun::run() {
  State& state = *state_;
  raise_file_limit();
  error_code error;
  tcp::resolver resolver(state.io);
  const auto found = resolver.resolve(state.config.server.host, state.config.server.port, error);
  if (error)
    return fail(Code::kIo, "{}: no such host ({})", state.config.server.shown, error.message());
  for (const auto& entry : found) state.endpoints.push_back(entry.endpoint());
  state.result.records.resize(state.requests.size());
  const double cpu = thread_cpu_s();
  state.start_ns = state.clock.monotonic_ns();
  state.tick();
  state.arrive();
  state.io.run();
  state.result.client_cpu = (thread_cpu_s() - cpu) / std::max(state.result.duration_s, 1e-9);
  return std::move(state.result);
}

void LoadRun::stop() { state_->stop_wanted = true; }

LoadProgress LoadRun::progress() const {
  return {state_->done, state_->failed, state_->running, state_->chunks};
}

}  // namespace artery::bench
