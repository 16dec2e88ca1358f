#pragma once
// http and https URLs as a client needs them (RFC 3986): whom to ask, for what. Pure functions, any
// thread. Private to http/.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace artery::server::http {

struct Url {
  bool is_https = false;
  std::string host;  // lower case; an IPv6 address without its brackets
  std::uint16_t port = 80;
  std::string target = "/";  // path and query; no fragment

  // As the Host header has it.
  std::string authority() const;
};

// Nullopt: another scheme, no host, a port beyond 65535, blanks or controls inside. A name and a
// password before the host are dropped.
std::optional<Url> parse_url(std::string_view text);

// What a Location header means on an answer from `base`.
std::optional<Url> parse_location(const Url& base, std::string_view location);

}  // namespace artery::server::http
