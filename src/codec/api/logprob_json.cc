#include "codec/api/logprob_json.h"

#include <fmt/core.h>

#include <cmath>

#include "codec/api/json_out.h"
#include "codec/unicode.h"

namespace artery::codec::api {

namespace {

bool is_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Char next = decode_utf8(bytes, at);
    if (next.state != Utf8State::kValid) return false;
    at += next.bytes;
  }
  return true;
}

void append_token(std::string& out, const TokenLogprob& entry, Faithfulness faithfulness) {
  out += R"({"token":)";
  if (is_utf8(entry.bytes)) {
    put_json_string(out, entry.bytes);
  } else {
    out += '"';
    for (const char c : entry.bytes) {
      out += fmt::format("\\\\x{:02x}", static_cast<unsigned char>(c));
    }
    out += '"';
  }
  out += R"(,"logprob":)";
  if (faithfulness == Faithfulness::kSafe && !std::isfinite(entry.logprob)) {
    out += "-9999.0";
  } else {
    put_json_number(out, entry.logprob);
  }
  out += R"(,"bytes":[)";
  for (std::size_t i = 0; i < entry.bytes.size(); ++i) {
    if (i > 0) out += ',';
    put_json_uint(out, static_cast<unsigned char>(entry.bytes[i]));
  }
  out += ']';
}

}  // namespace

void append_logprobs(
    std::string& out, std::span<const TokenLogprob> logprobs, Faithfulness faithfulness
) {
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    if (i > 0) out += ',';
    append_token(out, logprobs[i], faithfulness);
    out += R"(,"top_logprobs":[)";
    const std::vector<TokenLogprob>& top = logprobs[i].top;
    for (std::size_t j = 0; j < top.size(); ++j) {
      if (j > 0) out += ',';
      append_token(out, top[j], faithfulness);
      out += '}';
    }
    out += "]}";
  }
}

}  // namespace artery::codec::api
