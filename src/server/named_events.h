#pragma once
// Streams of named events (Messages, Responses), read back. Tests only.

#include <string>
#include <vector>

#include "server/stream_fixture.h"

namespace artery::server {

struct NamedEvent {
  std::string name;
  json::value data;
};

// Checks the form byte by byte: an "event:" line, a "data:" line with the same type inside.
inline std::vector<NamedEvent> named_events(const std::string& body) {
  std::vector<NamedEvent> out;
  std::size_t at = 0;
  while (at < body.size()) {
    const std::size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "unfinished event: " << body.substr(at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    const std::size_t line = event.find('\n');
    EXPECT_TRUE(event.starts_with("event: ")) << event;
    if (line == std::string::npos || !event.starts_with("event: ")) continue;
    const std::string data = event.substr(line + 1);
    EXPECT_TRUE(data.starts_with("data: ") && data.find('\n') == std::string::npos) << event;
    out.push_back({event.substr(7, line - 7), json::parse(data.substr(6))});
    EXPECT_EQ(text_of(out.back().data.at("type")), out.back().name);
  }
  return out;
}

inline std::vector<std::string> names(const std::vector<NamedEvent>& events) {
  std::vector<std::string> out;
  for (const NamedEvent& event : events) out.push_back(event.name);
  return out;
}

}  // namespace artery::server
