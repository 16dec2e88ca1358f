#pragma once
// Reasoning between two markers, and where it ends. Before and behind it everything is passed on.
// Space next to the markers belongs to them. Values, one thread at a time.

#include <string>
#include <string_view>

#include "codec/stream/markers.h"
#include "codec/stream/output_events.h"

namespace artery::codec {

class ThinkSplitter {
 public:
  // `markers`: the opening and the closing one. `is_open`: the prompt has opened it.
  ThinkSplitter(MarkerSet markers, bool is_open)
      : markers_(std::move(markers)), state_(is_open ? State::kInside : State::kStart) {}

  // True once all further text is for others; such text goes to `passed`.
  bool is_over() const { return state_ == State::kBehind; }
  // True when reasoning was seen, or will be.
  bool was_reasoning() const { return was_reasoning_ || state_ == State::kInside; }
  void push_text(std::string_view text, OutputEvents& out, std::string& passed);
  bool takes(std::string_view control_token) const { return markers_.control(control_token) >= 0; }
  // A control token that this class takes. One that opens reasoning counts at any place.
  void push_control(std::string_view token, OutputEvents& out, std::string& passed);
  // The reasoning ends here without its marker.
  void close(OutputEvents& out, std::string& passed);

 private:
  enum class State { kStart, kInside, kBehind };
  void take(char c, OutputEvents& out, std::string& passed);
  void take_inside(std::string_view text, OutputEvents& out);
  void open();

  MarkerSet markers_;
  MarkerFinder finder_;
  State state_;
  std::string space_;  // before the opening marker, or at the end of the reasoning so far
  bool drop_space_ = false, was_reasoning_ = false;
};

}  // namespace artery::codec
