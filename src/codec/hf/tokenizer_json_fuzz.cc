// Any bytes as a tokenizer.json, and as the files beside it: refused or made, and what is made
// turns texts into ids of its vocabulary and back without harm.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "codec/hf/hf_tokenizer.h"

namespace {

using namespace artery;
using namespace artery::codec;

void use(const Tokenizer& tokenizer) {
  const std::string_view texts[] = {
      "", "a", " ab a  1'S\n\n", "<s>\xE2\x96\x81\xFF<x> <|a|>", "\xE4\xB8\xAD\xCC\x81 e\xCC\x81"
  };
  const auto count = static_cast<TokenId>(tokenizer.vocab().tokens.size());
  for (std::string_view text : texts) {
    const auto ids = tokenizer.encode(text, {.add_special = true, .parse_special = true});
    for (TokenId id : ids)
      if (id < 0 || id >= count) std::abort();
    (void)tokenizer.decode(ids, true);
    if (ids != tokenizer.encode(text, {.add_special = true, .parse_special = true, .plain = true}))
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> warnings;
  for (std::size_t vocab_size : {0, 16}) {
    HfTokenizerConfig config{.bos = "<s>", .eos = "</s>", .vocab_size = vocab_size};
    if (const auto made = make_hf_tokenizer(text, config, &warnings)) use(**made);
  }
  (void)read_tokenizer_config(text);
  (void)read_generation_config(text);
  return 0;
}
