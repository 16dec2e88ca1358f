#include "codec/end_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace artery::codec {
namespace {

// Texts of control tokens after which a turn or a document is over, over the families; files mostly
// name only one of theirs by key (FR-D6).
constexpr std::array<std::string_view, 16> kEndTexts{
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "[EOS]",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81"
    "of\xE2\x96\x81"
    "sentence\xEF\xBD\x9C>",
};

constexpr std::string_view kWideBar = "\xEF\xBD\x9C";  // U+FF5C

bool is_between(std::string_view text, std::string_view first, std::string_view last) {
  return text.size() >= first.size() + last.size() && text.starts_with(first) &&
         text.ends_with(last);
}

constexpr std::array<std::string_view, 6> kInfillTexts{
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
};

bool looks_like_control(std::string_view text) {
  constexpr std::array<std::string_view, 4> kTexts{"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  const bool named = std::ranges::find(kTexts, text) != kTexts.end();
  const bool barred =
      is_between(text, "<|", "|>") && std::ranges::find(kInfillTexts, text) == kInfillTexts.end();
  const bool wide = text.size() > 2 && text.starts_with('<') && text.ends_with('>') &&
                    is_between(text.substr(1, text.size() - 2), kWideBar, kWideBar);
  return named || barred || wide || is_between(text, "<unused", ">");
}

}  // namespace

TokenKind kind_of_added_token(std::string_view text, bool special) {
  if (text == "<start_of_image>" || text == "<end_of_image>") return TokenKind::kUserDefined;
  return special || looks_like_control(text) ? TokenKind::kControl : TokenKind::kUserDefined;
}

void collect_end_tokens(VocabData& data) {
  std::vector<TokenId>& ends = data.end_of_generation;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.kinds[id] != TokenKind::kControl) continue;
    // In Llama-shaped vocabularies a generated <s> begins another document: llama2.c's models end
    // their stories with it.
    const bool next_document = data.model == TokenizerModel::kSentencePiece &&
                               static_cast<TokenId>(id) == data.bos && data.tokens[id] == "<s>";
    if (next_document || std::ranges::find(kEndTexts, data.tokens[id]) != kEndTexts.end())
      ends.push_back(static_cast<TokenId>(id));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

}  // namespace artery::codec
