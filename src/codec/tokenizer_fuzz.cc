// Any bytes as text over complete vocabularies of both kinds, which must come back; and any bytes
// as a vocabulary, which may be refused but must not crash.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/stream/detokenizer.h"
#include "codec/stream/stop_matcher.h"
#include "codec/test_vocabs.h"
#include "codec/tokenizer.h"

namespace {

using namespace artery;
using namespace artery::codec;

void require(bool condition) {
  if (!condition) std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto b = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return b;
  }
  std::string_view take(std::size_t count) {
    const std::string_view part = rest_.substr(0, count);
    rest_.remove_prefix(part.size());
    return part;
  }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, false, false);
  std::string text;
  for (TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

std::string replaced(std::string_view bytes) {
  Utf8Stream utf8;
  std::string text = utf8.push(bytes);
  return text + utf8.finish();
}

void check_text(const Tokenizer& tokenizer, std::string_view text, bool comes_back) {
  for (bool parse : {false, true}) {
    const auto ids = tokenizer.encode(text, {.parse_special = parse});
    require(ids == tokenizer.encode(text, {.parse_special = parse, .plain = true}));
    const std::string decoded = tokenizer.decode(ids, false);
    if (comes_back) require(decoded == text);
    require(stream(tokenizer, ids) == replaced(decoded));
    if (parse) continue;
    for (TokenId id : ids) require(!tokenizer.is_control(id) || id == tokenizer.vocab().unknown);
  }
  // Nothing inside a literal range becomes a control token.
  const ByteRange all[] = {{0, text.size()}};
  require(
      tokenizer.encode(text, {.parse_special = true, .literal = all}) == tokenizer.encode(text, {})
  );
}

void check_built_in(Input input) {
  static const std::vector<std::unique_ptr<Tokenizer>> exact = [] {
    std::vector<std::unique_ptr<Tokenizer>> made;
    for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "default"})
      made.push_back(Tokenizer::make(small_byte_level_vocab(pre)).take());
    return made;
  }();
  // NFC changes the text.
  static const auto normalizing = Tokenizer::make(small_byte_level_vocab("qwen2")).take();
  static const auto pieces = Tokenizer::make(small_sentence_piece_vocab()).take();
  const std::string_view text = input.rest();
  for (const auto& tokenizer : exact) check_text(*tokenizer, text, true);
  check_text(*normalizing, text, false);
  // A U+2581 in the text comes back as a space.
  check_text(*pieces, text, text.find("\xE2\x96\x81") == std::string_view::npos);
}

void check_vocabulary(Input input) {
  VocabData data;
  const std::uint8_t flags = input.byte();
  data.model = (flags & 1) != 0 ? TokenizerModel::kByteLevelBpe : TokenizerModel::kSentencePiece;
  const char* const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "default", "?"};
  data.pre = pres[(flags >> 1) % 6];
  data.add_space_prefix = (flags & 16) != 0;
  data.add_bos = data.add_eos = (flags & 32) != 0;
  data.bos = static_cast<TokenId>(input.byte()) - 1;
  data.eos = static_cast<TokenId>(input.byte()) - 1;
  data.unknown = static_cast<TokenId>(input.byte()) - 1;
  const std::size_t tokens = input.byte();
  for (std::size_t i = 0; i < tokens && !input.empty(); ++i) {
    const std::uint8_t head = input.byte();
    data.tokens.emplace_back(input.take(head & 7));
    data.kinds.push_back(static_cast<TokenKind>(head >> 5));
    float score = 0;
    const std::string_view bits = input.take((head & 8) != 0 ? sizeof score : 1);
    if (bits.size() == sizeof score) {
      std::memcpy(&score, bits.data(), sizeof score);
    } else {
      score = bits.empty() ? 0 : static_cast<float>(bits[0]);
    }
    data.scores.push_back(score);
  }
  const std::size_t merges = input.byte();
  for (std::size_t i = 0; i < merges && !input.empty(); ++i)
    data.merges.emplace_back(input.take(input.byte() & 15));
  const auto made = Tokenizer::make(std::move(data));
  if (!made) return;
  const auto ids =
      (*made)->encode(input.rest(), {.add_special = true, .parse_special = (flags & 64) != 0});
  require(
      ids ==
      (*made)->encode(
          input.rest(), {.add_special = true, .parse_special = (flags & 64) != 0, .plain = true}
      )
  );
  (void)stream(**made, ids);
  (void)(*made)->decode(ids, true);
}

void check_stops(Input input) {
  std::vector<std::string> stops;
  for (int i = input.byte() % 4; i > 0; --i) stops.emplace_back(input.take(input.byte() & 7));
  const std::string_view text = input.rest();
  StopMatcher whole(stops), bytes(stops);
  std::string at_once = whole.push(text);
  at_once += whole.finish();
  std::string one_by_one;
  for (char c : text) one_by_one += bytes.push(std::string_view(&c, 1));
  one_by_one += bytes.finish();
  require(at_once == one_by_one && whole.stopped() == bytes.stopped());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  switch (input.byte() % 3) {
    case 0:
      check_built_in(input);
      break;
    case 1:
      check_vocabulary(input);
      break;
    default:
      check_stops(input);
  }
  return 0;
}
