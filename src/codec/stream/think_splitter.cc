#include "codec/stream/think_splitter.h"

#include <utility>

#include "codec/stream/json_scan.h"

namespace artery::codec {

void ThinkSplitter::open() {
  state_ = State::kInside;
  was_reasoning_ = true;
  drop_space_ = true;
  space_.clear();
}

void ThinkSplitter::push_text(std::string_view text, OutputEvents& out, std::string& passed) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (state_ == State::kBehind) {
      passed += text.substr(i);
      return;
    }
    take(text[i], out, passed);
  }
}

void ThinkSplitter::take(char c, OutputEvents& out, std::string& passed) {
  std::string shown;
  const int marker = finder_.push(markers_, c, shown);
  if (state_ == State::kInside) {
    take_inside(shown, out);
    if (marker == 0) take_inside(markers_.text(0), out);
    if (marker == 1) {
      space_.clear();
      was_reasoning_ = true;
      state_ = State::kBehind;
    }
    return;
  }
  if (marker == 0) {
    open();
    return;
  }
  if (marker == 1) shown += markers_.text(1);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    if (is_json_space(shown[i])) {
      space_ += shown[i];
      continue;
    }
    // Not reasoning: the output begins with something else.
    passed += std::exchange(space_, {}) + shown.substr(i) + finder_.flush();
    state_ = State::kBehind;
    return;
  }
}

void ThinkSplitter::take_inside(std::string_view text, OutputEvents& out) {
  for (const char c : text) {
    if (is_json_space(c)) {
      if (!drop_space_) space_ += c;
      continue;
    }
    drop_space_ = false;
    if (!space_.empty()) out.reasoning(std::exchange(space_, {}));
    out.reasoning(std::string_view(&c, 1));
  }
}

void ThinkSplitter::push_control(std::string_view token, OutputEvents& out, std::string& passed) {
  if (markers_.control(token) == 0) {
    close(out, passed);
    open();
  } else if (state_ == State::kInside) {
    take_inside(finder_.flush(), out);
    space_.clear();
    was_reasoning_ = true;
    state_ = State::kBehind;
  }
}

void ThinkSplitter::close(OutputEvents& out, std::string& passed) {
  if (state_ == State::kInside) {
    take_inside(finder_.flush(), out);
    out.reasoning(std::exchange(space_, {}));
    was_reasoning_ = true;
  } else {
    passed += std::exchange(space_, {}) + finder_.flush();
  }
  state_ = State::kBehind;
}

}  // namespace artery::codec
