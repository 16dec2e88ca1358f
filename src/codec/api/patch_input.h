#pragma once
// Takes the patch out of apply_patch's arguments while they stream: {"input": "..."} gives the
// string's text, whatever follows its closing quote is dropped. Arguments of another form (other
// first key, no object, value not a string) are passed as they are. Bad escapes stay as they are.
// A value; one thread. Linear; holds back the beginning of the object or one escape.

#include <cstdint>
#include <string>
#include <string_view>

namespace artery::codec::api {

class PatchInput {
 public:
  // Appends what `arguments` (whole characters) adds to the patch.
  void feed(std::string_view arguments, std::string& out);
  // The arguments end: appends what is held back.
  void finish(std::string& out);

 private:
  enum class State : std::uint8_t { kBrace, kKey, kInKey, kColon, kQuote, kText, kDone, kVerbatim };
  // What the next state is when `c` fits the object's beginning, else kVerbatim.
  State after(char c) const;
  // Bytes of `arguments` used; stops at the end of the beginning.
  std::size_t feed_beginning(std::string_view arguments, std::string& out);
  void feed_text(std::string_view arguments, std::string& out);
  void feed_escape(char c, std::string& out);

  State state_ = State::kBrace;
  std::uint8_t key_length_ = 0;  // bytes of "input" seen, quotes included
  std::string held_;             // the beginning, or an unfinished escape
};

}  // namespace artery::codec::api
