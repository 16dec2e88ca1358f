#pragma once
// Conversations in the ShareGPT file form: a JSON array of {"conversations": [{"from", "value"},
// ...]} (also {"items": [...]} with "content"). Pure function, any thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace artery::bench {

struct Conversation {
  std::string prompt;  // first turn
  std::string answer;  // second turn
};

// The conversations with at least two turns, in the order of the file, at most `most`. One element
// of the array is parsed at a time, so a file of gigabytes needs little beyond itself. kBadFile
// names the element.
Result<std::vector<Conversation>> read_sharegpt(std::string_view text, std::size_t most);

}  // namespace artery::bench
