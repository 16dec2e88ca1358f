#pragma once
// DeepSeek's own prompt encodings, V4 and V4.1, byte for byte as deepseek-recipe 0.2.0 renders them
// (../shared/spec/deepinfer-and-recipe.md section 3). A prompt is special tokens and plain text
// apart: the spelling of a special token inside what users, tools or schemas say is text and
// becomes ordinary tokens. Pure functions, any thread; linear in the text.

#include <cstddef>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "codec/api/conversation.h"
#include "codec/api/convert.h"
#include "codec/tokenizer.h"

namespace artery::codec::deepseek {

struct SpecialTexts {
  std::string bos = "<｜begin▁of▁sentence｜>";
  std::string eos = "<｜end▁of▁sentence｜>";
  std::string think_begin = "<think>";
  std::string think_end = "</think>";
  std::string system = "<｜System｜>";
  std::string user = "<｜User｜>";
  std::string assistant = "<｜Assistant｜>";
  std::string latest_reminder = "<｜latest_reminder｜>";
  std::string dsml = "｜DSML｜";
  std::string image = "<｜image｜>";
  // Grounding: special inside what the assistant said, text elsewhere.
  std::string ref = "<｜ref｜>", ref_end = "<｜/ref｜>";
  std::string box = "<｜box｜>", box_end = "<｜/box｜>";
  std::string point = "<｜point｜>", point_end = "<｜/point｜>";
  std::string polygon = "<｜polygon｜>", polygon_end = "<｜/polygon｜>";
};

struct Rendered {
  std::string text;
  std::vector<ByteRange> specials;  // ascending, disjoint: each the spelling of one special token
};

Rendered render(
    const api::Conversation& conversation,
    api::ModelVersion version,
    const SpecialTexts& specials = SpecialTexts()
);

// kInvalidArgument naming the spelling when a special token is not in the added vocabulary. Plain
// stretches are encoded without the added vocabulary, each by itself.
Result<std::vector<TokenId>> encode(const Rendered& prompt, const Tokenizer& tokenizer);

}  // namespace artery::codec::deepseek
