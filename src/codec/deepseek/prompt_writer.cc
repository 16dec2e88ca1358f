#include "codec/deepseek/prompt_writer.h"

#include <algorithm>
#include <utility>

namespace artery::codec::deepseek {

PromptWriter::PromptWriter(const SpecialTexts& specials)
    : specials_(specials),
      grounding_{
          specials.ref,
          specials.ref_end,
          specials.box,
          specials.box_end,
          specials.point,
          specials.point_end,
          specials.polygon,
          specials.polygon_end
      } {}

void PromptWriter::assistant_text(std::string_view text) {
  std::array<char, 8> firsts{};
  std::size_t count = 0;
  for (const std::string_view spelling : grounding_) {
    if (spelling.empty()) continue;
    const char first = spelling.front();
    if (std::find(firsts.begin(), firsts.begin() + count, first) == firsts.begin() + count)
      firsts[count++] = first;
  }
  const std::string_view beginnings(firsts.data(), count);
  std::size_t begin = 0, at = 0;
  while ((at = text.find_first_of(beginnings, at)) != text.npos) {
    const auto found = std::ranges::find_if(grounding_, [&](std::string_view spelling) {
      return !spelling.empty() && text.substr(at).starts_with(spelling);
    });
    if (found == grounding_.end()) {
      ++at;
      continue;
    }
    plain(text.substr(begin, at - begin)).special(*found);
    begin = at += found->size();
  }
  plain(text.substr(begin));
}

void PromptWriter::text_with_images(std::string_view text, const std::vector<std::size_t>& places) {
  std::size_t begin = 0;
  for (const std::size_t place : places) {
    if (place < begin || !text.substr(std::min(place, text.size())).starts_with(specials_.image))
      continue;  // the conversion had another spelling: it stays text
    plain(text.substr(begin, place - begin)).special(specials_.image);
    begin = place + specials_.image.size();
  }
  plain(text.substr(begin));
}

}  // namespace artery::codec::deepseek
