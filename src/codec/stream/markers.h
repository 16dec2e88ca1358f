#pragma once
// The texts that structure a model's output. One that is a control token of the vocabulary counts
// only as that token, so that a model may write about it; any other is found in the text, across
// any split. Values, one thread at a time.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace artery::codec {

// True when `text` is a control token of the vocabulary.
using IsControlText = std::function<bool(std::string_view text)>;

// An ordered set of markers; users name them by index. Immutable.
class MarkerSet {
 public:
  MarkerSet() = default;
  MarkerSet(const std::vector<std::string>& texts, const IsControlText& is_control);

  std::size_t size() const { return markers_.size(); }
  const std::string& text(std::size_t index) const { return markers_[index].text; }
  // The marker that is this control token, or -1.
  int control(std::string_view token) const;
  // The marker in the text that is exactly `text`, or -1.
  int whole(std::string_view text) const;
  // True when a marker in the text starts with `text`.
  bool is_beginning(std::string_view text) const;

 private:
  struct Marker {
    std::string text;
    bool is_control = false;
  };
  std::vector<Marker> markers_;
};

// Finds the markers of a set in text that comes byte by byte. Holds back no more than what can
// still become one. Time: the length of the longest marker for each byte at most.
class MarkerFinder {
 public:
  // Takes a byte; appends to `passed` what is no marker for certain. The marker that is complete
  // now, or -1.
  int push(const MarkerSet& markers, char byte, std::string& passed);
  // What was held: the text ends here, or a control token interrupts it.
  std::string flush();
  bool holds() const { return !held_.empty(); }

 private:
  std::string held_;
};

}  // namespace artery::codec
