#include "codec/infill.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace artery::codec {
namespace {

struct Spelling {
  std::string_view prefix, suffix, middle;
};

// As llama.cpp knows them (llama-vocab.cpp). A family has all of a line.
constexpr std::array<Spelling, 8> kSpellings{{
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder, Granite
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        // SantaCoder
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                          // Code Llama
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM-4.5
    {"<|prefix|>", "<|suffix|>", "<|middle|>"},                 // Falcon-H1
}};

constexpr std::array<std::string_view, 14> kEnds{
    "<|fim_pad|>",
    "<fim_pad>",
    "<fim-pad>",
    "<PAD>",
    "<|repo_name|>",
    "<|repo|>",
    "<reponame>",
    "<repo_name>",
    "<fim-repo>",
    "<|file_sep|>",
    "<|file_separator|>",
    "<file_sep>",
    "<EOT>",
    "▁<EOT>",
};

TokenId find(const VocabData& data, std::string_view text) {
  const auto found = std::ranges::find(data.tokens, text);
  return found == data.tokens.end() ? -1 : static_cast<TokenId>(found - data.tokens.begin());
}

bool holds_a_mark(const VocabData& data, std::string_view text) {
  const InfillTokens& marks = data.infill;
  return std::ranges::any_of(std::array{marks.prefix, marks.suffix, marks.middle}, [&](TokenId id) {
    return text.find(data.tokens[static_cast<std::size_t>(id)]) != std::string_view::npos;
  });
}

// Marks are user-defined tokens in some files, which text becomes: then no text is read for tokens.
std::vector<TokenId> encode_data(const Tokenizer& tokenizer, std::string_view text) {
  EncodeOptions options;
  options.no_added = holds_a_mark(tokenizer.vocab(), text);
  return tokenizer.encode(text, options);
}

// Without the space that SentencePiece puts before a text, as Code Llama was trained: behind a sign
// that joins with nothing, whose tokens are then taken off.
std::vector<TokenId> encode_behind(const Tokenizer& tokenizer, std::string_view text) {
  constexpr std::string_view kSign = "☺";
  const VocabData& data = tokenizer.vocab();
  if (data.model != TokenizerModel::kSentencePiece || !data.add_space_prefix) {
    return encode_data(tokenizer, text);
  }
  const std::vector<TokenId> sign = encode_data(tokenizer, kSign);
  std::vector<TokenId> ids = encode_data(tokenizer, std::string(kSign) + std::string(text));
  const bool stands_alone =
      ids.size() >= sign.size() && std::equal(sign.begin(), sign.end(), ids.begin());
  if (!stands_alone) return encode_data(tokenizer, text);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(sign.size()));
  return ids;
}

}  // namespace

void find_infill_tokens(VocabData& data) {
  if (data.infill.known()) return;
  for (const Spelling& spelling : kSpellings) {
    const InfillTokens found{
        find(data, spelling.prefix), find(data, spelling.suffix), find(data, spelling.middle)
    };
    if (!found.known()) continue;
    data.infill = found;
    return;
  }
  data.infill = {};
}

std::vector<TokenId> infill_prompt(
    const Tokenizer& tokenizer, std::string_view before, std::string_view behind
) {
  const VocabData& data = tokenizer.vocab();
  std::vector<TokenId> ids;
  const auto add = [&](const std::vector<TokenId>& more) {
    ids.insert(ids.end(), more.begin(), more.end());
  };
  if (data.add_bos && data.bos >= 0) ids.push_back(data.bos);
  ids.push_back(data.infill.prefix);
  add(encode_data(tokenizer, before));
  ids.push_back(data.infill.suffix);
  add(encode_behind(tokenizer, behind));
  ids.push_back(data.infill.middle);
  return ids;
}

std::vector<TokenId> infill_ends(const VocabData& data) {
  std::vector<TokenId> ends = {data.infill.prefix, data.infill.suffix, data.infill.middle};
  for (const std::string_view text : kEnds) {
    if (const TokenId id = find(data, text); id >= 0) ends.push_back(id);
  }
  return ends;
}

}  // namespace artery::codec
