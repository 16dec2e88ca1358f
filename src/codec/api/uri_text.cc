#include "codec/api/uri_text.h"

#include <fmt/format.h>

#include <vector>

namespace artery::codec::api {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

constexpr std::string_view kUserInfo = "-._~!$&'()*+,;=:";
constexpr std::string_view kHost = "-._~!$&'()*+,;=";
constexpr std::string_view kPath = "-._~!$&'()*+,;=:@/";
constexpr std::string_view kQuery = "-._~!$&'()*+,;=:@/?";

// A part of a reference and where in it the part begins.
struct Part {
  std::string_view text;
  std::size_t begin;
};

std::string unexpected_at(std::size_t index) {
  return fmt::format("unexpected character at index {}", index);
}

// Letters, digits, percent codes and `others`.
std::optional<std::string> part_fault(Part part, std::string_view others) {
  const std::string_view text = part.text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || !is_hex(text[i + 1]) || !is_hex(text[i + 2]))
        return fmt::format("invalid percent-encoded octet at index {}", part.begin + i);
      i += 2;
    } else if (!is_alpha(c) && !is_digit(c) && others.find(c) == others.npos) {
      return unexpected_at(part.begin + i);
    }
  }
  return std::nullopt;
}

std::optional<std::string> literal_fault(Part host) {
  const std::size_t end = host.text.find(']');
  for (std::size_t i = 1; i < host.text.size() && i < end; ++i) {
    const char c = host.text[i];
    const bool future = host.text.size() > 1 && (host.text[1] == 'v' || host.text[1] == 'V');
    const bool fits = future ? is_alpha(c) || is_digit(c) || kUserInfo.find(c) != kUserInfo.npos
                             : is_hex(c) || c == ':' || c == '.';
    if (!fits) return unexpected_at(host.begin + i);
  }
  if (end == host.text.npos) return unexpected_at(host.begin + host.text.size());
  if (host.text.substr(1, end - 1).find_first_of(":vV") == host.text.npos)
    return unexpected_at(host.begin + 1);
  return std::nullopt;
}

std::optional<std::string> authority_fault(Part authority) {
  if (const std::size_t at = authority.text.find('@'); at != authority.text.npos) {
    if (auto fault = part_fault({authority.text.substr(0, at), authority.begin}, kUserInfo))
      return fault;
    authority = {authority.text.substr(at + 1), authority.begin + at + 1};
  }
  std::size_t host_end = authority.text.find(':');
  if (authority.text.starts_with('[')) {
    if (auto fault = literal_fault(authority)) return fault;
    host_end = authority.text.find(']') + 1;
  } else if (auto fault =
                 part_fault({authority.text.substr(0, host_end), authority.begin}, kHost)) {
    return fault;
  }
  if (host_end >= authority.text.size()) return std::nullopt;
  if (authority.text[host_end] != ':') return unexpected_at(authority.begin + host_end);
  for (std::size_t i = host_end + 1; i < authority.text.size(); ++i) {
    if (!is_digit(authority.text[i])) return unexpected_at(authority.begin + i);
  }
  return std::nullopt;
}

bool is_scheme(std::string_view text) {
  if (text.empty() || !is_alpha(text.front())) return false;
  for (const char c : text) {
    if (!is_alpha(c) && !is_digit(c) && c != '+' && c != '-' && c != '.') return false;
  }
  return true;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> kept;
  const bool rooted = path.starts_with('/');
  std::size_t at = rooted ? 1 : 0;
  bool ends_in_folder = false;
  while (at <= path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    ends_in_folder = segment == "." || segment == "..";
    if (segment == "..") {
      if (!kept.empty()) kept.pop_back();
    } else if (segment != ".") {
      kept.push_back(segment);
    }
    at = end + 1;
  }
  std::string out = rooted ? "/" : "";
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) out += '/';
    out += kept[i];
  }
  if (ends_in_folder && !kept.empty()) out += '/';
  return out;
}

std::string merged(const UriParts& base, std::string_view path) {
  if (base.authority && base.path.empty()) return "/" + std::string(path);
  const std::size_t slash = base.path.rfind('/');
  return std::string(base.path.substr(0, slash == base.path.npos ? 0 : slash + 1)) +
         std::string(path);
}

}  // namespace

UriParts split_uri(std::string_view reference) {
  UriParts parts;
  if (const std::size_t hash = reference.find('#'); hash != reference.npos) {
    parts.fragment = reference.substr(hash + 1);
    reference = reference.substr(0, hash);
  }
  if (const std::size_t mark = reference.find('?'); mark != reference.npos) {
    parts.query = reference.substr(mark + 1);
    reference = reference.substr(0, mark);
  }
  if (const std::size_t colon = reference.find_first_of(":/");
      colon != reference.npos && reference[colon] == ':') {
    parts.scheme = reference.substr(0, colon);
    reference = reference.substr(colon + 1);
  }
  if (reference.starts_with("//")) {
    const std::size_t end = std::min(reference.find('/', 2), reference.size());
    parts.authority = reference.substr(2, end - 2);
    reference = reference.substr(end);
  }
  parts.path = reference;
  return parts;
}

std::optional<std::string> uri_fault(std::string_view reference) {
  const UriParts parts = split_uri(reference);
  const auto place = [&](std::string_view part) {
    return Part{part, static_cast<std::size_t>(part.data() - reference.data())};
  };
  if (parts.scheme && !is_scheme(*parts.scheme)) return unexpected_at(0);
  if (parts.authority) {
    if (auto fault = authority_fault(place(*parts.authority))) return fault;
  }
  if (auto fault = part_fault(place(parts.path), kPath)) return fault;
  if (parts.query) {
    if (auto fault = part_fault(place(*parts.query), kQuery)) return fault;
  }
  return parts.fragment ? part_fault(place(*parts.fragment), kQuery) : std::nullopt;
}

std::string resolve_uri(std::string_view base, std::string_view reference) {
  const UriParts from = split_uri(base), to = split_uri(reference);
  const bool own = to.scheme.has_value() || to.authority.has_value();
  const auto scheme = to.scheme ? to.scheme : from.scheme;
  const auto authority = own ? to.authority : from.authority;
  auto query = to.query;
  std::string path;
  if (own || to.path.starts_with('/')) {
    path = without_dots(to.path);
  } else if (to.path.empty()) {
    path = from.path;
    if (!query) query = from.query;
  } else {
    path = without_dots(merged(from, to.path));
  }
  std::string out;
  if (scheme) out += std::string(*scheme) + ":";
  if (authority) {
    std::string_view host = *authority;
    if (host.ends_with(':')) host.remove_suffix(1);
    out += "//" + std::string(host);
  }
  out += path;
  if (query) out += "?" + std::string(*query);
  return out;
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) { return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2])) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace artery::codec::api
