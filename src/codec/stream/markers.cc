#include "codec/stream/markers.h"

#include <utility>

namespace artery::codec {

MarkerSet::MarkerSet(const std::vector<std::string>& texts, const IsControlText& is_control) {
  for (const std::string& text : texts) markers_.push_back({text, is_control(text)});
}

int MarkerSet::control(std::string_view token) const {
  for (std::size_t i = 0; i < markers_.size(); ++i) {
    if (markers_[i].is_control && markers_[i].text == token) return static_cast<int>(i);
  }
  return -1;
}

int MarkerSet::whole(std::string_view text) const {
  for (std::size_t i = 0; i < markers_.size(); ++i) {
    if (!markers_[i].is_control && markers_[i].text == text) return static_cast<int>(i);
  }
  return -1;
}

bool MarkerSet::is_beginning(std::string_view text) const {
  for (const Marker& marker : markers_) {
    if (!marker.is_control && marker.text.starts_with(text)) return true;
  }
  return false;
}

int MarkerFinder::push(const MarkerSet& markers, char byte, std::string& passed) {
  held_ += byte;
  std::size_t begin = 0;
  while (begin < held_.size() && !markers.is_beginning(std::string_view(held_).substr(begin))) {
    ++begin;
  }
  passed.append(held_, 0, begin);
  held_.erase(0, begin);
  const int found = held_.empty() ? -1 : markers.whole(held_);
  if (found >= 0) held_.clear();
  return found;
}

std::string MarkerFinder::flush() { return std::exchange(held_, {}); }

}  // namespace artery::codec
