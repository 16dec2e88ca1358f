#include "codec/stream/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace artery::codec {
namespace {

// borders[i]: length of the longest proper beginning of stop[0..i] that is also its end.
std::vector<std::size_t> make_borders(const std::string& stop) {
  std::vector<std::size_t> borders(stop.size(), 0);
  std::size_t length = 0;
  for (std::size_t i = 1; i < stop.size(); ++i) {
    while (length > 0 && stop[i] != stop[length]) length = borders[length - 1];
    if (stop[i] == stop[length]) ++length;
    borders[i] = length;
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
  for (const std::string& stop : stops_) borders_.push_back(make_borders(stop));
  progress_.assign(stops_.size(), 0);
}

int StopMatcher::advance(char byte) {
  int complete = -1;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    const std::string& stop = stops_[i];
    std::size_t& length = progress_[i];
    while (length > 0 && stop[length] != byte) length = borders_[i][length - 1];
    if (stop[length] == byte) ++length;
    if (length < stop.size()) continue;
    if (complete < 0 || stop.size() > stops_[static_cast<std::size_t>(complete)].size())
      complete = static_cast<int>(i);
  }
  return complete;
}

std::size_t StopMatcher::held_bytes() const {
  return progress_.empty() ? 0 : *std::max_element(progress_.begin(), progress_.end());
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  for (char byte : text) {
    held_.push_back(byte);
    matched_ = advance(byte);
    if (!stopped()) continue;
    std::string shown = std::exchange(held_, {});
    if (!include_stop_) shown.resize(shown.size() - matched().size());
    return shown;
  }
  const std::size_t shown_bytes = held_.size() - held_bytes();
  std::string shown = held_.substr(0, shown_bytes);
  held_.erase(0, shown_bytes);
  return shown;
}

std::string StopMatcher::finish() {
  progress_.assign(stops_.size(), 0);
  return std::exchange(held_, {});
}

}  // namespace artery::codec
