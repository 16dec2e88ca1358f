#include <algorithm>
#include <unordered_map>

#include "codec/deepseek/encoding.h"

namespace artery::codec::deepseek {
namespace {

Result<TokenId> special_id(std::string_view spelling, const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids = tokenizer.encode(spelling, {.parse_special = true});
  const bool is_one = ids.size() == 1 && tokenizer.is_added(ids.front()) &&
                      tokenizer.piece(ids.front()) == spelling;
  if (!is_one) {
    return fail(
        Code::kInvalidArgument, "special token \"{}\" is not in the added vocabulary", spelling
    );
  }
  return ids.front();
}

}  // namespace

Result<std::vector<TokenId>> encode(const Rendered& prompt, const Tokenizer& tokenizer) {
  const std::string_view text = prompt.text;
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + prompt.specials.size() + 2);
  std::unordered_map<std::string_view, TokenId> known;
  const auto plain = [&](std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    const auto more = tokenizer.encode(text.substr(begin, end - begin), {.no_added = true});
    ids.insert(ids.end(), more.begin(), more.end());
  };
  std::size_t at = 0;
  for (const ByteRange& range : prompt.specials) {
    plain(at, range.begin);
    const std::string_view spelling = text.substr(range.begin, range.end - range.begin);
    auto found = known.find(spelling);
    if (found == known.end()) {
      found = known.emplace(spelling, TRY(special_id(spelling, tokenizer))).first;
    }
    ids.push_back(found->second);
    at = range.end;
  }
  plain(at, text.size());
  return ids;
}

}  // namespace artery::codec::deepseek
