#pragma once
// What the families share whose calls stand between markers: control tokens, or their texts found
// in the stream. Owns the search; a family says what a marker means and where the text between
// goes. Owned by one OutputParser, one thread at a time.

#include <string_view>
#include <utility>

#include "codec/stream/call_parser.h"

namespace artery::codec {

class MarkerCalls : public CallParser {
 public:
  bool takes(std::string_view token) const final { return markers_.control(token) >= 0; }
  void push_text(std::string_view text, OutputEvents& out) final {
    for (const char c : text) take(c, out);
  }
  void push_control(std::string_view token, OutputEvents& out) final {
    take_rest(out);
    take_marker(markers_.control(token), out);
  }

 protected:
  explicit MarkerCalls(MarkerSet markers) : markers_(std::move(markers)) {}

  // False where the text of a marker is no marker: inside JSON.
  virtual bool looks_for_markers() const = 0;
  virtual void take_marker(int marker, OutputEvents& out) = 0;
  // A byte that belongs to no marker.
  virtual void take_passed(char c, OutputEvents& out) = 0;

  void take(char c, OutputEvents& out);
  // What may be the beginning of a marker is none.
  void take_rest(OutputEvents& out);
  const std::string& text_of(int marker) const {
    return markers_.text(static_cast<std::size_t>(marker));
  }

 private:
  MarkerSet markers_;
  MarkerFinder finder_;
};

}  // namespace artery::codec
