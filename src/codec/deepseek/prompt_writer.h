#pragma once
// A prompt as it grows: plain text and special tokens apart. One thread; linear.

#include <array>
#include <string_view>

#include "codec/deepseek/encoding.h"

namespace artery::codec::deepseek {

class PromptWriter {
 public:
  // `specials` must outlive it.
  explicit PromptWriter(const SpecialTexts& specials);

  const SpecialTexts& specials() const { return specials_; }
  void reserve(std::size_t bytes) { prompt_.text.reserve(bytes); }

  PromptWriter& plain(std::string_view text) {
    prompt_.text += text;
    return *this;
  }
  // An empty spelling is no token.
  PromptWriter& special(std::string_view spelling) {
    if (spelling.empty()) return *this;
    const std::size_t begin = prompt_.text.size();
    prompt_.text += spelling;
    prompt_.specials.push_back({begin, prompt_.text.size()});
    return *this;
  }
  // What the assistant said: the spellings of grounding tokens are special.
  void assistant_text(std::string_view text);
  // With the placeholders of images at `places` (of their first byte).
  void text_with_images(std::string_view text, const std::vector<std::size_t>& places);
  // For JSON that is written in place; plain.
  std::string& tail() { return prompt_.text; }

  Rendered take() { return std::move(prompt_); }

 private:
  const SpecialTexts& specials_;
  std::array<std::string_view, 8> grounding_;
  Rendered prompt_;
};

}  // namespace artery::codec::deepseek
