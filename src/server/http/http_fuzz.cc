// Bytes through the request parser in pieces, as a connection feeds it: never a crash, progress
// and limits always, and the same requests whatever the pieces are.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/parser.h"

namespace {

using artery::server::http::Request;
using artery::server::http::RequestParser;

constexpr artery::server::http::ParserLimits kLimits{4096, 16, 8192};

void require(bool condition) {
  if (!condition) std::abort();
}

// The requests that came out, as one text. A malformed line may be refused before or after its end
// has come, so giving up is not part of it.
std::string parse_all(std::string_view bytes, std::size_t piece) {
  std::string out, in;
  RequestParser parser(kLimits);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    in.append(bytes.substr(at, piece));
    for (;;) {
      std::size_t consumed = 0;
      const RequestParser::State state = parser.feed(in, &consumed);
      require(consumed <= in.size());
      in.erase(0, consumed);
      if (state == RequestParser::State::kFailed) {
        const int status = parser.failure_status();
        require(status == 400 || status == 413 || status == 431);
        return out;
      }
      if (state == RequestParser::State::kNeedMore) break;
      const Request request = parser.take();
      parser.reset();
      require(request.body.size() <= kLimits.body_bytes_max);
      out += request.method + " " + request.path + "?" + request.query + "\n";
      for (const auto& [name, value] : request.headers) out += name + ": " + value + "\n";
      out += request.body + "\n";
      if (in.empty()) break;
    }
    require(in.size() <= kLimits.header_bytes_max + piece);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = 1 + data[0];
  // Where the limits are met depends on the pieces; everything before does not.
  if (size <= 2048) {
    require(parse_all(bytes, piece) == parse_all(bytes, bytes.size()));
  } else {
    parse_all(bytes, piece);
  }
  return 0;
}
