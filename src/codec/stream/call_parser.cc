#include "codec/stream/call_parser.h"

#include "codec/stream/json_scan.h"

namespace artery::codec {

void ContentText::push(std::string_view text, OutputEvents& out) {
  for (const char c : text) {
    if (is_json_space(c)) {
      if (!drop_) space_ += c;
      continue;
    }
    drop_ = false;
    if (!space_.empty()) {
      out.content(space_);
      space_.clear();
    }
    out.content(std::string_view(&c, 1));
  }
}

void ContentText::finish(OutputEvents& out) {
  out.content(space_);
  space_.clear();
}

}  // namespace artery::codec
