#include "codec/stream/detokenizer.h"

#include <utility>

#include "codec/unicode.h"

namespace artery::codec {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string shown;
  shown.reserve(held_.size());
  std::size_t pos = 0;
  while (pos < held_.size()) {
    const Utf8Char c = decode_utf8(held_, pos);
    if (c.state == Utf8State::kCut) break;
    if (c.state == Utf8State::kValid) {
      shown.append(held_, pos, c.bytes);
    } else {
      shown += kReplacement;
    }
    pos += c.bytes;
  }
  held_.erase(0, pos);
  return shown;
}

std::string Utf8Stream::finish() {
  // What is held is the beginning of one character: one maximal subpart.
  return std::exchange(held_, {}).empty() ? std::string() : std::string(kReplacement);
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special, bool after_text)
    : tokenizer_(&tokenizer), skip_special_(skip_special), at_start_(!after_text) {}

std::string Detokenizer::push(TokenId id) {
  const VocabData& vocab = tokenizer_->vocab();
  const bool has_dummy_space =
      vocab.model == TokenizerModel::kSentencePiece && vocab.add_space_prefix;
  const bool control = tokenizer_->is_control(id);
  if (control && skip_special_) return {};
  std::string_view bytes = tokenizer_->piece(id);
  if (control) {
    at_start_ = true;  // as in Tokenizer::decode: a dummy space follows a control token as well
  } else if (!bytes.empty()) {
    if (at_start_ && has_dummy_space && bytes.front() == ' ') bytes.remove_prefix(1);
    at_start_ = false;
  }
  return utf8_.push(bytes);
}

std::string Detokenizer::finish() { return utf8_.finish(); }

}  // namespace artery::codec
