#include "server/http/url.h"

#include <algorithm>
#include <charconv>

namespace artery::server::http {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return out;
}

// Anything else could end the request line or a header early.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > ' ' && byte != 0x7F && c != '\\';
  });
}

bool read_port(std::string_view digits, std::uint16_t& port) {
  if (digits.empty()) return true;  // "host:" is the scheme's own
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port > 0;
}

bool read_authority(std::string_view text, Url& url) {
  if (const std::size_t at = text.rfind('@'); at != text.npos) text.remove_prefix(at + 1);
  std::size_t host_end = 0;
  if (text.starts_with('[')) {
    host_end = text.find(']');
    if (host_end == text.npos) return false;
    url.host = lower(text.substr(1, host_end - 1));
    ++host_end;
  } else {
    host_end = std::min(text.find(':'), text.size());
    url.host = lower(text.substr(0, host_end));
  }
  text.remove_prefix(host_end);
  if (url.host.empty() || url.host.size() > 255) return false;
  return text.empty() || (text.front() == ':' && read_port(text.substr(1), url.port));
}

}  // namespace

std::string Url::authority() const {
  const std::string shown = host.find(':') == host.npos ? host : '[' + host + ']';
  return port == (is_https ? 443 : 80) ? shown : shown + ':' + std::to_string(port);
}

std::optional<Url> parse_url(std::string_view text) {
  if (!is_plain(text)) return std::nullopt;
  const std::string scheme = lower(text.substr(0, std::min(text.find("://"), text.size())));
  Url url;
  url.is_https = scheme == "https";
  if (!url.is_https && scheme != "http") return std::nullopt;
  url.port = url.is_https ? 443 : 80;
  text.remove_prefix(std::min(scheme.size() + 3, text.size()));
  const std::size_t end = std::min(text.find_first_of("/?#"), text.size());
  if (!read_authority(text.substr(0, end), url)) return std::nullopt;
  text.remove_prefix(end);
  text = text.substr(0, text.find('#'));
  url.target = (text.starts_with('/') ? "" : "/") + std::string(text);
  return url;
}

std::optional<Url> parse_location(const Url& base, std::string_view location) {
  if (!is_plain(location) || location.empty()) return std::nullopt;
  if (const std::size_t colon = location.find_first_of(":/?#");
      colon != location.npos && location[colon] == ':')
    return parse_url(location);
  const std::string scheme = base.is_https ? "https:" : "http:";
  if (location.starts_with("//")) return parse_url(scheme + std::string(location));
  location = location.substr(0, location.find('#'));
  Url url = base;
  const std::string path = base.target.substr(0, base.target.find('?'));
  if (location.empty()) return url;
  if (location.front() == '/')
    url.target = location;
  else if (location.front() == '?')
    url.target = path + std::string(location);
  else
    url.target = path.substr(0, path.rfind('/') + 1) + std::string(location);
  return url;
}

}  // namespace artery::server::http
