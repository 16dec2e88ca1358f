#pragma once
// Tokens to text, piece by piece, for one choice of one request. Not shared between threads.
// A delta never ends inside a UTF-8 character; what is still open is held back (FR-A1). Bytes that
// can never become a character are shown as U+FFFD, once per maximal subpart, as Unicode
// recommends.

#include <string>
#include <string_view>

#include "base/ids.h"
#include "codec/tokenizer.h"

namespace artery::codec {

// Raw bytes in, whole characters out.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // what may be shown now
  std::string finish();                      // what was held, incomplete characters as U+FFFD

 private:
  std::string held_;
};

class Detokenizer {
 public:
  // `after_text`: false at the very start of a sequence (SPM drops its dummy space there), true
  // when generated text continues a prompt, so that a leading space is real (FR-A4).
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool after_text);
  std::string push(TokenId id);
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_;
  Utf8Stream utf8_;
};

}  // namespace artery::codec
