#pragma once
// Finds stop strings in streamed text, across any split. Holds back just enough that no delta ever
// shows a part of a stop string (FR-D1). Not shared between threads.

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
  std::string finish();  // held text, when no stop came
  bool stopped() const { return matched_ >= 0; }
  const std::string& matched() const { return stops_[static_cast<std::size_t>(matched_)]; }

 private:
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace artery::codec
