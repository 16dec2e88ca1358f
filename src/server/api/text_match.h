#pragma once
// Small comparisons of header text. Pure functions, any thread.

#include <algorithm>
#include <string>
#include <string_view>

namespace artery::server::api {

inline std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return (x | 0x20) == (y | 0x20);
  });
}

// The client's id as far as it is harmless in headers, JSON and logs; a new one when nothing is.
std::string clean_id(std::string_view sent);

}  // namespace artery::server::api
