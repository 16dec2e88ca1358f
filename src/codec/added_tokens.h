#pragma once
// Tokens that are matched as whole texts before merging, with the rules that a tokenizer.json can
// give each: white space around it is part of it, it must be a word of its own, it is looked for
// only in what others left. Over SpecialTokens, which finds the texts. Immutable after
// construction, any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "codec/special_tokens.h"

namespace artery::codec {

struct AddedRules {
  bool lstrip = false, rstrip = false;  // takes the white space before, behind it
  bool single_word = false;             // no letter, mark or digit touches it
};

class AddedTokens {
 public:
  // As SpecialTokens::add. `late`: searched only between the early ones.
  void add(
      std::string_view text, TokenId id, bool control, AddedRules rules = {}, bool late = false
  );

  bool has_late() const { return has_late_; }
  // As SpecialTokens::find; `from` is where the search and white space taken on the left begin.
  SpecialMatch find_early(
      std::string_view text,
      std::size_t from,
      bool parse_control,
      std::span<const ByteRange> literal
  ) const {
    SpecialMatch match = early_.find(text, from, parse_control, literal);
    return rules_.empty() ? match : with_rules(early_, match, text, from, parse_control, literal);
  }
  SpecialMatch find_late(
      std::string_view text,
      std::size_t from,
      bool parse_control,
      std::span<const ByteRange> literal
  ) const {
    SpecialMatch match = late_.find(text, from, parse_control, literal);
    return rules_.empty() ? match : with_rules(late_, match, text, from, parse_control, literal);
  }

 private:
  SpecialMatch with_rules(
      const SpecialTokens& tokens,
      SpecialMatch match,
      std::string_view text,
      std::size_t from,
      bool parse_control,
      std::span<const ByteRange> literal
  ) const;

  SpecialTokens early_, late_;
  bool has_late_ = false;
  std::vector<AddedRules> rules_;  // by id, up to the last that has any; empty without
};

}  // namespace artery::codec
