#include "codec/deepseek/tag_head.h"

#include <utility>

namespace artery::codec::deepseek {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool says_false(const std::string& value) {
  std::string word;
  for (const char c : value) {
    if (!is_blank(c)) word += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  }
  return word == "false";
}

}  // namespace

TagHead::TagHead(bool in_name) {
  if (!in_name) return;
  key_ = "name";
  part_ = Part::kBeforeValue;
}

TagHead::Step TagHead::end_attribute() {
  Step step = Step::kMore;
  if (has_value_ && key_ == "name" && !has_name_) {
    name_ = std::move(value_);
    has_name_ = true;
    step = Step::kNamed;
  } else if (has_value_ && key_ == "string") {
    is_raw_ = says_false(value_);
  }
  key_.clear();
  value_.clear();
  has_value_ = false;
  part_ = Part::kBetween;
  return step;
}

TagHead::Step TagHead::push(char c) {
  switch (part_) {
    case Part::kQuoted:
      if (c == quote_) return end_attribute();
      value_ += c;
      return Step::kMore;
    case Part::kBeforeValue:
      if (is_blank(c)) return Step::kMore;
      if (c == '>') break;
      has_value_ = true;
      if (c == '"' || c == '\'') {
        part_ = Part::kQuoted;
        quote_ = c;
      } else {
        part_ = Part::kBare;
        value_ += c;
      }
      return Step::kMore;
    case Part::kBare:
      if (c == '>') break;
      if (is_blank(c)) return end_attribute();
      value_ += c;
      return Step::kMore;
    case Part::kBetween:
    case Part::kKey:
      if (c == '>') break;
      if (c == '=') {
        part_ = Part::kBeforeValue;
      } else if (is_blank(c)) {
        // `name = "a"`: the key waits for its sign.
        if (part_ == Part::kKey) part_ = Part::kBetween;
      } else {
        if (part_ == Part::kBetween) key_.clear();
        part_ = Part::kKey;
        key_ += c;
      }
      return Step::kMore;
  }
  end_attribute();
  return Step::kEnd;
}

}  // namespace artery::codec::deepseek
