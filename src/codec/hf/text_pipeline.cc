#include "codec/hf/text_pipeline.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "base/log.h"
#include "codec/bpe/word_scanner.h"

namespace artery::codec {
namespace {

// One line a process: a text that does it once does it in each request.
void warn_of_effort() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  log_warn(
      "a regular expression of the tokenizer took more effort than its limit; the rest of that "
      "stretch of text was not split by it, so its tokens may differ from other programs'"
  );
}

void each_match(const TextPattern& pattern, std::string_view text, const Regex::Visit& visit) {
  if (pattern.regex) {
    if (!pattern.regex->each_match(text, visit)) warn_of_effort();
    return;
  }
  if (pattern.literal.empty()) return;
  for (std::size_t at = 0; (at = text.find(pattern.literal, at)) != std::string_view::npos;) {
    visit(at, at + pattern.literal.size());
    at += pattern.literal.size();
  }
}

std::string_view strip(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  const auto space = [&](std::size_t pos) {
    return classify(text, pos).char_class == CharClass::kSpace;
  };
  while (left && begin < end && space(begin)) begin += classify(text, begin).bytes;
  while (right && end > begin) {
    std::size_t last = end - 1;
    while (last > begin && end - last < 4 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80
    )
      --last;
    if (!space(last) || last + classify(text, last).bytes != end) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

// A look that costs little and spares most texts a step's memory.
bool surely_unmatched(const TextPattern& pattern, std::string_view text) {
  return !pattern.regex &&
         (pattern.literal.empty() || text.find(pattern.literal) == std::string_view::npos);
}

// Lower case, or without marks.
std::string mapped(std::string_view text, NormalizeStep::Kind kind) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    const bool valid = c.state == Utf8State::kValid;
    if (valid && kind == NormalizeStep::Kind::kLowercase) {
      append_lower(out, c.code);
    } else if (!valid || kind_of_code(c.code) != CharKind::kMark) {
      out += text.substr(pos, c.bytes);
    }
    pos += c.bytes;
  }
  return out;
}

struct Piece {
  std::string_view text;
  bool at_start;
};

// A part of a piece, and whether the step's pattern matches it.
struct Part {
  std::size_t begin, end;
  bool match;
};

using Parts = std::vector<Part>;

void add_part(Parts& parts, std::size_t begin, std::size_t end, bool match) {
  parts.push_back({begin, end, match});
}

Parts parts_of_matches(const TextPattern& pattern, std::string_view text) {
  Parts parts;
  std::size_t done = 0;
  each_match(pattern, text, [&](std::size_t begin, std::size_t end) {
    if (done < begin) add_part(parts, done, begin, false);
    add_part(parts, begin, end, true);
    done = end;
  });
  if (done < text.size()) add_part(parts, done, text.size(), false);
  return parts;
}

bool is_of_kind(std::string_view text, std::size_t pos, CutStep::Kind kind) {
  const KindOfChar c = kind_of_char(text, pos);
  if (kind == CutStep::Kind::kNumbers) return c.kind == CharKind::kNumber;
  if (kind == CutStep::Kind::kWhiteSpace) return c.kind == CharKind::kSpace;
  const auto byte = static_cast<unsigned char>(text[pos]);
  if (byte < 0x80) return c.kind == CharKind::kPunctuation || c.kind == CharKind::kSymbol;
  return c.kind == CharKind::kPunctuation;
}

// Each character of the kind is a match of its own.
Parts parts_of_chars(CutStep::Kind kind, std::string_view text) {
  Parts parts;
  std::size_t done = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = pos + kind_of_char(text, pos).bytes;
    if (is_of_kind(text, pos, kind)) {
      if (done < pos) add_part(parts, done, pos, false);
      add_part(parts, pos, end, true);
      done = end;
    }
    pos = end;
  }
  if (done < text.size()) add_part(parts, done, text.size(), false);
  return parts;
}

// NormalizedString::split of the library, after the matches are known.
Parts with_behavior(const Parts& parts, SplitBehavior behavior) {
  Parts out;
  const std::size_t count = parts.size();
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return parts;
    case SplitBehavior::kRemoved:
      for (const Part& part : parts)
        if (!part.match) out.push_back(part);
      return out;
    case SplitBehavior::kContiguous:
      for (const Part& part : parts) {
        if (!out.empty() && part.match == previous_match) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
        previous_match = part.match;
      }
      return out;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.match && !previous_match && !out.empty()) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
        previous_match = part.match;
      }
      return out;
    case SplitBehavior::kMergedWithNext:
      for (std::size_t i = count; i-- > 0;) {
        const Part& part = parts[i];
        if (part.match && !previous_match && !out.empty()) {
          out.back().begin = part.begin;
        } else {
          out.push_back(part);
        }
        previous_match = part.match;
      }
      return {out.rbegin(), out.rend()};
  }
  return parts;
}

// Pieces of one text and the texts that steps made.
class Cutter {
 public:
  Cutter(std::string_view text, bool at_start) { pieces_.push_back({text, at_start}); }

  void apply(const CutStep& step) {
    std::vector<Piece> out;
    out.reserve(pieces_.size());
    for (const Piece& piece : pieces_) apply_to(step, piece, out);
    pieces_ = std::move(out);
  }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  void apply_to(const CutStep& step, const Piece& piece, std::vector<Piece>& out) {
    switch (step.kind) {
      case CutStep::Kind::kRule:
        each_word_of(step.rule, piece, out);
        return;
      case CutStep::Kind::kReplace: {
        TextPattern space;
        space.literal = " ";
        if (piece.text.find(' ') == std::string_view::npos) {
          out.push_back(piece);
        } else {
          made_.push_back(replace_pattern(piece.text, space, step.content));
          out.push_back({made_.back(), piece.at_start});
        }
        return;
      }
      case CutStep::Kind::kPrefix: {
        const bool wanted =
            (piece.at_start || !step.only_first) && !piece.text.starts_with(step.content);
        if (!wanted) {
          out.push_back(piece);
          return;
        }
        made_.push_back(step.content + std::string(piece.text));
        out.push_back({made_.back(), piece.at_start});
        return;
      }
      case CutStep::Kind::kPattern: {
        Parts parts = parts_of_matches(step.pattern, piece.text);
        if (step.invert)
          for (Part& part : parts) part.match = !part.match;
        give(parts, step.behavior, piece, out);
        return;
      }
      default:
        give(parts_of_chars(step.kind, piece.text), step.behavior, piece, out);
    }
  }

  static void each_word_of(SplitRule rule, const Piece& piece, std::vector<Piece>& out) {
    for_each_word(rule, piece.text, [&](std::string_view word) {
      out.push_back({word, piece.at_start && word.data() == piece.text.data()});
    });
  }

  static void give(
      const Parts& parts, SplitBehavior behavior, const Piece& piece, std::vector<Piece>& out
  ) {
    for (const Part& part : with_behavior(parts, behavior))
      if (part.begin < part.end)
        out.push_back(
            {piece.text.substr(part.begin, part.end - part.begin), piece.at_start && part.begin == 0
            }
        );
  }

  std::vector<Piece> pieces_;
  std::deque<std::string> made_;
};

}  // namespace

std::string replace_pattern(
    std::string_view text, const TextPattern& pattern, std::string_view content
) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  std::size_t done = 0;
  each_match(pattern, text, [&](std::size_t begin, std::size_t end) {
    out += text.substr(done, begin - done);
    out += content;
    done = end;
  });
  out += text.substr(done);
  return out;
}

std::string_view TextPipeline::normalize(std::string_view text, std::string& buffer) const {
  std::string next;
  const auto keep = [&](std::string made) {
    next = std::move(made);
    buffer.swap(next);
    return std::string_view(buffer);
  };
  for (const NormalizeStep& step : normalizers_) {
    switch (step.kind) {
      case NormalizeStep::Kind::kForm:
        // `next` is another memory than what `text` may point to.
        if (const std::string_view formed = to_normal_form(step.form, text, next);
            formed.data() != text.data())
          text = keep(std::string(formed));
        break;
      case NormalizeStep::Kind::kLowercase:
      case NormalizeStep::Kind::kStripAccents:
        text = keep(mapped(text, step.kind));
        break;
      case NormalizeStep::Kind::kStrip:
        text = strip(text, step.left, step.right);
        break;
      case NormalizeStep::Kind::kPrepend:
        if (!text.empty()) text = keep(step.content + std::string(text));
        break;
      case NormalizeStep::Kind::kReplace:
        if (!surely_unmatched(step.pattern, text))
          text = keep(replace_pattern(text, step.pattern, step.content));
        break;
    }
  }
  return text;
}

void TextPipeline::cut(std::string_view text, bool at_start, const OnWord& on_word) const {
  if (text.empty()) return;
  const bool whole = std::all_of(cuts_.begin(), cuts_.end(), [&](const CutStep& step) {
    return step.kind == CutStep::Kind::kPattern && !step.invert &&
           surely_unmatched(step.pattern, text);
  });
  if (whole) return on_word(text);
  Cutter cutter(text, at_start);
  for (const CutStep& step : cuts_) cutter.apply(step);
  for (const Piece& piece : cutter.pieces())
    if (!piece.text.empty()) on_word(piece.text);
}

bool TextPipeline::words_last() const {
  return std::none_of(cuts_.begin(), cuts_.end(), [](const CutStep& step) {
    return step.kind == CutStep::Kind::kReplace || step.kind == CutStep::Kind::kPrefix;
  });
}

void TextPipeline::run(
    std::string_view text, bool at_start, const OnWord& on_word, const OnToken& on_token
) const {
  std::string buffer;
  const std::string_view all = normalize(text, buffer);
  for (std::size_t pos = 0; pos < all.size();) {
    const SpecialMatch match = normalized_.find_early(all, pos, false, {});
    cut(all.substr(pos, match.begin - pos), at_start && pos == 0, on_word);
    if (match.id >= 0) on_token(match.id);
    pos = match.end;
  }
}

}  // namespace artery::codec
