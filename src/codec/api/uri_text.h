#pragma once
// Addresses as text by RFC 3986, as far as JSON Schemas need them: whether a reference is one, and
// what it means beside a base. Pure functions, any thread; linear.

#include <optional>
#include <string>
#include <string_view>

namespace artery::codec::api {

struct UriParts {
  std::optional<std::string_view> scheme, authority;
  std::string_view path;
  std::optional<std::string_view> query, fragment;
};

UriParts split_uri(std::string_view reference);

// Nullopt, or what is wrong with it: "unexpected character at index 3".
std::optional<std::string> uri_fault(std::string_view reference);

// The target without its fragment (5.2.2, 5.2.4). `base` is absolute.
std::string resolve_uri(std::string_view base, std::string_view reference);

// %41 to A.
std::string percent_decoded(std::string_view text);

}  // namespace artery::codec::api
