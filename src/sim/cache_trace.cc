#include "sim/cache_trace.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "sim/line_source.h"
#include "sim/seeded.h"

namespace artery::sim {
namespace json = boost::json;
namespace {

constexpr double kTokensMax = 1 << 24;  // beyond any context
constexpr double kDayS = 24 * 3600;
constexpr double kBinS = 3;
constexpr std::int64_t kProgressLines = 256;

class Reader {
 public:
  Reader(LineSource& lines, std::uint64_t seed) : lines_(lines), seeded_(seed) {}

  Result<> line(std::string_view text) {
    json::error_code error;
    json::parse_options options;
    options.max_depth = 8;
    const json::value value =
        json::parse(json::string_view(text.data(), text.size()), error, {}, options);
    if (error) return bad("not JSON ({})", error.message());
    if (!value.is_object()) return bad("not an object");
    const json::object& object = value.get_object();
    if (trace_.format.empty()) TRY(recognise(object, text));
    if (trace_.format == "claude-code") return session_line(object);
    if (trace_.format == "mooncake") return mooncake(object);
    return rtp_llm(object);
  }

  Result<CacheTrace> done() {
    if (trace_.requests.empty())
      return fail(Code::kBadFile, "{}: the trace has no requests", lines_.path());
    spread_bins();
    sort_by_time();
    return std::move(trace_);
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) const {
    return fail(
        Code::kBadFile,
        "{}, line {}: {}",
        lines_.path(),
        lines_.number(),
        fmt::format(text, std::forward<Args>(args)...)
    );
  }

  Result<> recognise(const json::object& object, std::string_view text) {
    if (object.contains("input_length") && object.contains("hash_ids")) {
      trace_.format = "mooncake";
      trace_.block_tokens = 512;
    } else if (object.contains("il") && object.contains("bh")) {
      trace_.format = "rtp-llm";
      trace_.block_tokens = 1024;
    } else if (object.contains("session") && object.contains("block_size")) {
      trace_.format = "claude-code";
      trace_.is_agents = true;
    } else {
      return fail(
          Code::kUnsupported,
          "{}: none of the trace formats mooncake, rtp-llm, claude-code: it begins with \"{}\"",
          lines_.path(),
          text.substr(0, 60)
      );
    }
    return {};
  }

  // Finite and not negative.
  Result<double> number(const json::object& object, std::string_view name, double most) const {
    const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
    if (value == nullptr) return bad("\"{}\" is missing", name);
    if (!value->is_number()) return bad("\"{}\" is not a number", name);
    const double out = value->to_number<double>();
    if (!std::isfinite(out) || out < 0 || out > most)
      return bad("\"{}\" must be from 0 to {}", name, most);
    return out;
  }
  Result<std::int64_t> tokens(const json::object& object, std::string_view name) const {
    return static_cast<std::int64_t>(TRY(number(object, name, kTokensMax)));
  }
  Result<const json::array*> array(const json::object& object, std::string_view name) const {
    const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
    if (value == nullptr || !value->is_array()) return bad("\"{}\" is not an array", name);
    return &value->get_array();
  }

  Result<> add(CacheRequest& request, std::uint64_t first, std::uint64_t count) const {
    const std::int64_t most =
        (request.input_tokens + trace_.block_tokens - 1) / trace_.block_tokens;
    if (count > static_cast<std::uint64_t>(most - request.blocks))
      return bad(
          "more blocks of {} tokens than {} tokens fill", trace_.block_tokens, request.input_tokens
      );
    request.blocks += static_cast<std::int64_t>(count);
    if (!request.runs.empty() && request.runs.back().first + request.runs.back().count == first)
      request.runs.back().count += static_cast<std::uint32_t>(count);
    else if (count > 0)
      request.runs.push_back({first, static_cast<std::uint32_t>(count)});
    return {};
  }

  Result<> mooncake(const json::object& object) {
    CacheRequest request;
    request.time_s = TRY(number(object, "timestamp", 1e15)) / 1000;
    request.input_tokens = TRY(tokens(object, "input_length"));
    request.output_tokens = TRY(tokens(object, "output_length"));
    const json::array* ids = TRY(array(object, "hash_ids"));
    for (const json::value& id : *ids) {
      json::error_code error;
      const auto value = id.to_number<std::uint64_t>(error);
      if (error) return bad("\"hash_ids\" holds what is no id");
      TRY(add(request, value, 1));
    }
    trace_.requests.push_back(std::move(request));
    return {};
  }

  Result<> rtp_llm(const json::object& object) {
    CacheRequest request;
    request.time_s = TRY(number(object, "ts", 1e15)) / 1000;
    request.input_tokens = TRY(tokens(object, "il"));
    request.output_tokens = TRY(tokens(object, "ol"));
    const json::array* hashes = TRY(array(object, "bh"));
    for (const json::value& hash : *hashes) {
      if (!hash.is_string()) return bad("\"bh\" holds what is no text");
      const json::string& text = hash.get_string();
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size())
        return bad("\"bh\" holds \"{}\", which is no whole number", std::string_view(text));
      TRY(add(request, static_cast<std::uint64_t>(value), 1));
    }
    trace_.requests.push_back(std::move(request));
    return {};
  }

  Result<> session_line(const json::object& object) {
    if (const json::value* name = object.if_contains("session"); name != nullptr) {
      if (!name->is_string()) return bad("\"session\" is not text");
      const std::int64_t size = TRY(tokens(object, "block_size"));
      if (size == 0 || (trace_.block_tokens != 0 && trace_.block_tokens != size))
        return bad("\"block_size\" is {} after {}", size, trace_.block_tokens);
      trace_.block_tokens = size;
      const auto root = static_cast<std::uint32_t>(sessions_.size() + 1);
      const bool is_new =
          sessions_.emplace(std::string(name->get_string()), Session{root, 0}).second;
      if (!is_new) return bad("session \"{}\" begins twice", std::string_view(name->get_string()));
      sessions_.find(name->get_string())->second.start_s = kDayS * seeded_.unit();
      return {};
    }
    const json::value* of = object.if_contains("s");
    if (of == nullptr || !of->is_string()) return bad("\"s\" is missing");
    const auto session = sessions_.find(of->get_string());
    if (session == sessions_.end())
      return bad("session \"{}\" has no header before", std::string_view(of->get_string()));
    CacheRequest request;
    request.root = session->second.root;
    request.time_s = session->second.start_s + TRY(number(object, "t", 1e9));
    request.input_tokens = TRY(tokens(object, "in"));
    request.output_tokens = TRY(tokens(object, "out"));
    const json::array* runs = TRY(array(object, "h"));
    for (const json::value& run : *runs) {
      json::error_code bad_first, bad_count;
      if (!run.is_array() || run.get_array().size() != 2)
        return bad("\"h\" wants pairs of first id and run length");
      const auto first = run.get_array()[0].to_number<std::uint64_t>(bad_first);
      const auto count = run.get_array()[1].to_number<std::uint64_t>(bad_count);
      if (bad_first || bad_count) return bad("\"h\" holds a pair that is no run");
      TRY(add(request, first, count));
    }
    trace_.requests.push_back(std::move(request));
    return {};
  }

  // Requests of equal time keep their order.
  void sort_by_time() {
    std::vector<std::pair<double, std::size_t>> order;
    for (const CacheRequest& request : trace_.requests)
      order.emplace_back(request.time_s, order.size());
    std::sort(order.begin(), order.end());
    std::vector<CacheRequest> sorted;
    sorted.reserve(order.size());
    for (const auto& [time, at] : order) sorted.push_back(std::move(trace_.requests[at]));
    trace_.requests = std::move(sorted);
  }

  void spread_bins() {
    if (trace_.format != "mooncake") return;
    for (const CacheRequest& request : trace_.requests)
      if (std::fmod(request.time_s, kBinS) != 0) return;
    for (CacheRequest& request : trace_.requests) request.time_s += kBinS * seeded_.unit();
  }

  struct Session {
    std::uint32_t root = 0;
    double start_s = 0;
  };
  LineSource& lines_;
  Seeded seeded_;
  CacheTrace trace_;
  std::map<std::string, Session, std::less<>> sessions_;
};

}  // namespace

Result<CacheTrace> read_cache_trace(
    const std::string& path,
    const FileSystem& files,
    std::uint64_t seed,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress
) {
  LineSource lines = TRY(LineSource::open(path, files));
  Reader reader(lines, seed);
  for (;;) {
    const std::optional<std::string_view> line = TRY(lines.next());
    if (!line) break;
    TRY(reader.line(*line));
    if (progress && lines.number() % kProgressLines == 0)
      progress(lines.bytes_done(), lines.bytes());
  }
  return reader.done();
}

}  // namespace artery::sim
