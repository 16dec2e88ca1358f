#pragma once
// Finds stop strings in streamed text, across any split. Holds back just enough that no delta ever
// shows a part of a stop string (FR-D1). Of several the one that is complete first wins, of those
// complete at the same place the longest, so that the result does not depend on how the text was
// cut. Time is linear in the text, times the number of stops. Not shared between threads.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace artery::codec {

class StopMatcher {
 public:
  // Empty strings are ignored. `include_stop`: the stop string itself is shown (vLLM's
  // include_stop_str_in_output).
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // Text that may be shown now. After a match the rest of the input is dropped and later pushes
  // give nothing.
  std::string push(std::string_view text);
  // Held text, when no stop came. Later text starts anew.
  std::string finish();
  bool stopped() const { return matched_ >= 0; }
  const std::string& matched() const { return stops_[static_cast<std::size_t>(matched_)]; }

 private:
  // Moves every stop's progress over one byte; the index of the longest that is complete now, or
  // -1.
  int advance(char byte);
  std::size_t held_bytes() const;  // the longest beginning of a stop that the text ends with

  std::vector<std::string> stops_;
  std::vector<std::vector<std::size_t>> borders_;  // Knuth-Morris-Pratt failure tables
  std::vector<std::size_t> progress_;              // bytes of each stop that the text ends with
  bool include_stop_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace artery::codec
