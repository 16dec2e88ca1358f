#include "bench/trace_reader.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <utility>

namespace artery::bench {
namespace json = boost::json;
namespace {

// Beyond any context length; what a damaged file may claim is cut here.
constexpr std::int64_t kTokensMax = 1 << 22;
// Sessions of the Claude Code traces start one after the other, this far apart.
constexpr double kSessionGapS = 30;

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  // The next line without its end, blank ones left out.
  std::optional<std::string_view> next() {
    while (at_ < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view line = text_.substr(at_, end - at_);
      at_ = end + 1;
      ++number_;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (line.find_first_not_of(" \t") != std::string_view::npos) return line;
    }
    return std::nullopt;
  }
  std::size_t number() const { return number_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0, number_ = 0;
};

template <typename... Args>
tl::unexpected<Error> bad_line(
    const Lines& lines, fmt::format_string<Args...> text, Args&&... args
) {
  return fail(
      Code::kBadFile,
      "trace, line {}: {}",
      lines.number(),
      fmt::format(text, std::forward<Args>(args)...)
  );
}

Result<double> number_of(const json::value& value) {
  double number = 0;
  if (value.is_double())
    number = value.get_double();
  else if (value.is_int64())
    number = static_cast<double>(value.get_int64());
  else if (value.is_uint64())
    number = static_cast<double>(value.get_uint64());
  else
    return fail(Code::kBadFile, "not a number");
  if (!std::isfinite(number)) return fail(Code::kBadFile, "not finite");
  return number;
}

Result<double> field(const Lines& lines, const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr) return bad_line(lines, "\"{}\" is missing", name);
  const Result<double> number = number_of(*value);
  if (!number) return bad_line(lines, "\"{}\" is {}", name, number.error().message);
  return *number;
}

std::int64_t tokens_of(double number) {
  return static_cast<std::int64_t>(std::clamp(number, 1.0, static_cast<double>(kTokensMax)));
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

Result<json::object> parse_object(const Lines& lines, std::string_view line) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = 8;
  json::value value = json::parse(json::string_view(line.data(), line.size()), error, {}, options);
  if (error) return bad_line(lines, "not JSON ({})", error.message());
  if (!value.is_object()) return bad_line(lines, "not an object");
  return std::move(value.get_object());
}

// Ids as numbers or texts. A block's value is that of the chain up to it in all three formats.
Result<std::vector<std::uint64_t>> ids_of(
    const Lines& lines, const json::object& object, std::string_view name, std::size_t most
) {
  std::vector<std::uint64_t> ids;
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || value->is_null()) return ids;
  if (!value->is_array()) return bad_line(lines, "\"{}\" is not an array", name);
  for (const json::value& id : value->get_array()) {
    if (ids.size() == most) break;
    if (id.is_int64())
      ids.push_back(static_cast<std::uint64_t>(id.get_int64()));
    else if (id.is_uint64())
      ids.push_back(id.get_uint64());
    else if (id.is_string())
      ids.push_back(hash_of(std::string_view(id.get_string())));
    else
      return bad_line(lines, "\"{}\" holds something that is no id", name);
  }
  return ids;
}

std::size_t blocks_of(std::int64_t tokens, std::int64_t block_tokens) {
  return static_cast<std::size_t>((tokens + block_tokens - 1) / block_tokens);
}

struct JsonNames {
  const char *format, *time, *input, *output, *blocks;
  std::int64_t block_tokens;
};
constexpr JsonNames kMooncake = {
    "mooncake", "timestamp", "input_length", "output_length", "hash_ids", 512
};
constexpr JsonNames kRtpLlm = {"rtp-llm", "ts", "il", "ol", "bh", 1024};

Result<Trace> read_json_rows(std::string_view text, const JsonNames& names) {
  Trace trace = {names.format, names.block_tokens, true, {}};
  Lines lines(text);
  while (const auto line = lines.next()) {
    const json::object object = TRY(parse_object(lines, *line));
    TraceRow row;
    row.time_s = TRY(field(lines, object, names.time)) / 1000;
    row.input_tokens = tokens_of(TRY(field(lines, object, names.input)));
    row.output_tokens = tokens_of(TRY(field(lines, object, names.output)));
    row.blocks =
        TRY(ids_of(lines, object, names.blocks, blocks_of(row.input_tokens, names.block_tokens)));
    trace.rows.push_back(std::move(row));
  }
  return trace;
}

// [[first id, run length], ...] of one session.
Result<std::vector<std::uint64_t>> expand_runs(
    const Lines& lines, const json::object& object, std::uint64_t session, std::size_t most
) {
  std::vector<std::uint64_t> ids;
  const json::value* runs = object.if_contains("h");
  if (runs == nullptr) return ids;
  if (!runs->is_array()) return bad_line(lines, "\"h\" is not an array");
  for (const json::value& run : runs->get_array()) {
    if (!run.is_array() || run.get_array().size() != 2)
      return bad_line(lines, "\"h\" wants pairs of first id and run length");
    const Result<double> first = number_of(run.get_array()[0]);
    const Result<double> length = number_of(run.get_array()[1]);
    if (!first || !length || *first < 0 || *first > 1e15 || *length < 0)
      return bad_line(lines, "\"h\" holds a pair that is no run");
    const auto start = static_cast<std::uint64_t>(*first);
    for (std::uint64_t i = 0; static_cast<double>(i) < *length && ids.size() < most; ++i)
      ids.push_back(session ^ ((start + i) * 0x9e3779b97f4a7c15u));
  }
  return ids;
}

Result<Trace> read_sessions(std::string_view text) {
  Trace trace = {"claude-code", 0, true, {}};
  Lines lines(text);
  std::map<std::string, double, std::less<>> starts;
  while (const auto line = lines.next()) {
    const json::object object = TRY(parse_object(lines, *line));
    if (object.contains("block_size")) {
      const std::int64_t size = tokens_of(TRY(field(lines, object, "block_size")));
      if (trace.block_tokens != 0 && trace.block_tokens != size)
        return bad_line(lines, "block_size {} after {}", size, trace.block_tokens);
      trace.block_tokens = size;
      continue;
    }
    if (trace.block_tokens == 0) return bad_line(lines, "a request before its session's header");
    const json::value* session = object.if_contains("s");
    if (session == nullptr || !session->is_string()) return bad_line(lines, "\"s\" is missing");
    const std::string name(session->get_string());
    const double start =
        starts.emplace(name, kSessionGapS * static_cast<double>(starts.size())).first->second;
    TraceRow row;
    row.time_s = start + TRY(field(lines, object, "t"));
    row.input_tokens = tokens_of(TRY(field(lines, object, "in")));
    row.output_tokens = tokens_of(TRY(field(lines, object, "out")));
    row.blocks = TRY(
        expand_runs(lines, object, hash_of(name), blocks_of(row.input_tokens, trace.block_tokens))
    );
    trace.rows.push_back(std::move(row));
  }
  return trace;
}

std::vector<std::string_view> split(std::string_view line, char separator) {
  std::vector<std::string_view> cells;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find(separator, at), line.size());
    cells.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return cells;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// "2023-11-16 18:17:03.9799600" as seconds of an arbitrary origin.
std::optional<double> parse_time(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':')
    return std::nullopt;
  const auto year = parse_number(text.substr(0, 4)), month = parse_number(text.substr(5, 2)),
             day = parse_number(text.substr(8, 2)), hour = parse_number(text.substr(11, 2)),
             minute = parse_number(text.substr(14, 2)), second = parse_number(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  std::tm tm{};
  tm.tm_year = static_cast<int>(*year) - 1900;
  tm.tm_mon = static_cast<int>(*month) - 1;
  tm.tm_mday = static_cast<int>(*day);
  double seconds = static_cast<double>(timegm(&tm)) + *hour * 3600 + *minute * 60 + *second;
  const std::size_t digits = text.find_first_not_of("0123456789", 20);
  if (text.size() > 20 && text[19] == '.')
    seconds += parse_number(fmt::format("0.{}", text.substr(20, digits - 20))).value_or(0);
  return seconds;
}

// Columns of time (-1: none), input and output (-1: none).
struct TableColumns {
  const char* format;
  char separator;
  int time, input, output;
  bool header, clock_time;
};
constexpr TableColumns kAzure = {"azure", ',', 0, 1, 2, true, true};
constexpr TableColumns kVidur = {"vidur", ',', -1, 0, 1, true, false};
constexpr TableColumns kArrivals = {"arrivals", '\t', 0, 1, -1, false, false};
constexpr double kDefaultOutput = 128;

Result<Trace> read_table(std::string_view text, const TableColumns& columns) {
  Trace trace = {columns.format, 0, columns.time >= 0, {}};
  Lines lines(text);
  if (columns.header) lines.next();
  const auto needed =
      static_cast<std::size_t>(std::max({columns.time, columns.input, columns.output}));
  while (const auto line = lines.next()) {
    if (line->front() == '#') continue;
    const std::vector<std::string_view> cells = split(*line, columns.separator);
    if (cells.size() <= needed) return bad_line(lines, "{} columns", cells.size());
    const auto cell = [&](int column) { return cells[static_cast<std::size_t>(column)]; };
    const auto input = parse_number(cell(columns.input));
    const auto output = columns.output < 0 ? kDefaultOutput : parse_number(cell(columns.output));
    std::optional<double> time = 0.0;
    if (columns.clock_time)
      time = parse_time(cell(columns.time));
    else if (columns.time >= 0)
      time = parse_number(cell(columns.time));
    if (!input || !output || !time) return bad_line(lines, "not numbers where numbers belong");
    if (!columns.clock_time) *time /= 1000;
    trace.rows.push_back({*time, tokens_of(*input), tokens_of(*output), {}});
  }
  return trace;
}

// Rows of equal time keep their order.
void sort_by_time(std::vector<TraceRow>& rows) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < rows.size(); ++i) order.emplace_back(rows[i].time_s, i);
  std::sort(order.begin(), order.end());
  std::vector<TraceRow> sorted;
  sorted.reserve(rows.size());
  for (const auto& [time, index] : order) sorted.push_back(std::move(rows[index]));
  rows = std::move(sorted);
}

// Mooncake's times are bins of three seconds: the rows of a bin are spread evenly over it.
void spread_bins(std::vector<TraceRow>& rows) {
  constexpr double kBinS = 3;
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin;
    while (end < rows.size() && rows[end].time_s == rows[begin].time_s) ++end;
    const double bin = rows[begin].time_s;
    for (std::size_t i = begin; i < end; ++i)
      rows[i].time_s =
          bin + kBinS * static_cast<double>(i - begin) / static_cast<double>(end - begin);
    begin = end;
  }
}

Result<Trace> read_any(std::string_view text) {
  Lines lines(text);
  const auto first = lines.next();
  if (!first) return fail(Code::kBadFile, "the trace is empty");
  if (first->front() == '{') {
    const json::object object = TRY(parse_object(lines, *first));
    if (object.contains("input_length")) return read_json_rows(text, kMooncake);
    if (object.contains("il")) return read_json_rows(text, kRtpLlm);
    if (object.contains("block_size")) return read_sessions(text);
  }
  if (first->starts_with("TIMESTAMP,ContextTokens")) return read_table(text, kAzure);
  if (first->starts_with("num_prefill_tokens,num_decode_tokens")) return read_table(text, kVidur);
  if (first->front() == '#' || first->find('\t') != std::string_view::npos)
    return read_table(text, kArrivals);
  return fail(
      Code::kUnsupported,
      "none of the trace formats mooncake, rtp-llm, claude-code, azure, vidur, arrivals: the first "
      "line is \"{}\"",
      first->substr(0, 60)
  );
}

}  // namespace

Result<Trace> read_trace(std::string_view text, std::size_t rows_max) {
  Trace trace = TRY(read_any(text));
  std::vector<TraceRow>& rows = trace.rows;
  if (rows.empty()) return fail(Code::kBadFile, "the trace has no requests");
  sort_by_time(rows);
  if (trace.format == kMooncake.format) spread_bins(rows);
  if (rows.size() > rows_max) rows.resize(rows_max);
  if (rows.empty()) return trace;
  const double start = rows.front().time_s;
  for (TraceRow& row : rows) row.time_s -= start;
  return trace;
}

}  // namespace artery::bench
