#include "cli/batch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <utility>

#include "codec/api/json_tree.h"

namespace artery::cli {
namespace {

using codec::api::Json;
using codec::api::JsonTree;

constexpr std::array<std::string_view, 5> kPaths = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
};

std::string quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

std::size_t behind_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

std::size_t behind_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

std::size_t behind_value(std::string_view text, std::size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = behind_string(text, at);
    } else {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at;
    }
    const char next = at < text.size() ? text[at] : ',';
    if (depth <= 0 && (is_blank(next) || next == ',' || next == '}')) break;
  }
  return at;
}

// The text of a member of an object that is known to be good JSON; of equal keys the last. Empty
// when no key is spelled so.
std::string_view member_text(std::string_view object, std::string_view name) {
  std::string_view found;
  std::size_t at = behind_blanks(object, 0) + 1;
  while (true) {
    at = behind_blanks(object, at);
    if (at >= object.size() || object[at] == '}') return found;
    const std::size_t key = at;
    at = behind_string(object, at);
    const std::string_view spelled = object.substr(key + 1, at - key - 2);
    at = behind_blanks(object, behind_blanks(object, at) + 1);  // the colon
    const std::size_t value = at;
    at = behind_value(object, at);
    if (spelled == name) found = object.substr(value, at - value);
    at = behind_blanks(object, at);
    if (at < object.size() && object[at] == ',') ++at;
  }
}

std::string paths_text() {
  std::string out;
  for (const std::string_view path : kPaths) out += (out.empty() ? "" : ", ") + std::string(path);
  return out;
}

// The JSON of one line may not hold line breaks of its own.
void append_on_one_line(std::string& out, std::string_view json) {
  for (const char c : json) out += c == '\n' || c == '\r' ? ' ' : c;
}

}  // namespace

tl::expected<BatchRequest, BatchRefusal> read_batch_line(std::string_view line) {
  BatchRefusal refusal;
  const auto refuse = [&](std::string_view code, std::string message) {
    refusal.code = code;
    refusal.message = std::move(message);
    return tl::unexpected(refusal);
  };
  const auto tree = JsonTree::parse(line);
  if (!tree) return refuse("invalid_json_line", "not a JSON line: " + tree.error());
  const Json& root = tree->root();
  if (!root.is_object()) {
    return refuse(
        "invalid_json_line", fmt::format("the line is {}, expected an object", kind_name(root))
    );
  }
  const Json* id = root.find("custom_id");
  if (id == nullptr || !id->is_string() || id->text().empty()) {
    return refuse("missing_custom_id", "custom_id must be a text that is not empty");
  }
  refusal.custom_id = std::string(id->text());
  const Json* method = root.find("method");
  if (method == nullptr || !method->is_text("POST")) {
    return refuse("invalid_method", "method must be \"POST\"");
  }
  const Json* url = root.find("url");
  if (url == nullptr || !url->is_string() ||
      std::ranges::find(kPaths, url->text()) == kPaths.end()) {
    return refuse("invalid_url", "url must be one of " + paths_text());
  }
  const Json* body = root.find("body");
  if (body == nullptr || !body->is_object()) {
    return refuse("invalid_body", "body must be an object: the JSON of the request");
  }
  const Json* stream = body->find("stream");
  if (stream != nullptr && stream->is_bool() && stream->boolean()) {
    return refuse("invalid_body", "stream: a batch has no streams; leave it out");
  }
  const std::string_view text = member_text(line, "body");
  if (text.empty()) return refuse("invalid_body", "spell the name \"body\" without escapes");
  return BatchRequest{*refusal.custom_id, std::string(url->text()), std::string(text)};
}

std::string batch_answer_line(std::string_view custom_id, const server::OfflineAnswer& answer) {
  std::string out = fmt::format(
      R"({{"id":{},"custom_id":{},"response":{{"status_code":{},"request_id":{},"body":)",
      quoted("batch_req_" + answer.request_id),
      quoted(custom_id),
      answer.status,
      quoted(answer.request_id)
  );
  append_on_one_line(out, answer.body);
  out += R"(},"error":null})";
  return out;
}

std::string batch_refusal_line(const BatchRefusal& refusal, std::int64_t number) {
  return fmt::format(
      R"({{"id":"batch_req_line_{}","custom_id":{},"response":null,"error":{{"code":{},"message":{}}}}})",
      number,
      refusal.custom_id ? quoted(*refusal.custom_id) : "null",
      quoted(refusal.code),
      quoted(fmt::format("line {}: {}", number, refusal.message))
  );
}

std::optional<BatchRecord> read_batch_record(std::string_view line) {
  const auto tree = JsonTree::parse(line, 2 * JsonTree::kMaxDepth);
  if (!tree || !tree->root().is_object()) return std::nullopt;
  const Json& root = tree->root();
  const Json* id = root.find("custom_id");
  const Json* response = root.find("response");
  if (id == nullptr || response == nullptr || root.find("error") == nullptr) return std::nullopt;
  BatchRecord record;
  if (id->is_string()) record.custom_id = std::string(id->text());
  const Json* status = response->find("status_code");
  record.is_answered = status != nullptr && status->is_number() && status->number() == 200;
  return record;
}

}  // namespace artery::cli
