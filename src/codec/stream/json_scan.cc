#include "codec/stream/json_scan.h"

#include "codec/unicode.h"

namespace artery::codec {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

bool ends_word(char c) {
  return is_json_space(c) || c == ',' || c == '}' || c == ']' || c == ';' || c == '<';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

char unescaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    default:
      return c;
  }
}

}  // namespace

std::string json_escape(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out;
}

JsonValueScanner::Step JsonValueScanner::push(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (depth_ == 0) return Step::kLast;
    }
    return Step::kInside;
  }
  const bool first = !started_;
  started_ = true;
  if (depth_ == 0 && !first && ends_word(c)) return Step::kBehind;
  if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    if (--depth_ <= 0) return Step::kLast;
  }
  return Step::kInside;
}

void JsonStringReader::take_unit(std::uint32_t unit, std::string& out) {
  const bool is_low = unit >= 0xDC00 && unit < 0xE000;
  if (high_ != 0 && is_low) {
    append_utf8(out, static_cast<char32_t>(0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00)));
    high_ = 0;
    return;
  }
  if (high_ != 0) append_utf8(out, kReplacement);
  high_ = 0;
  if (unit >= 0xD800 && unit < 0xDC00) {
    high_ = unit;
  } else {
    append_utf8(out, is_low ? kReplacement : static_cast<char32_t>(unit));
  }
}

bool JsonStringReader::push(char c, std::string& out) {
  const auto end_half = [&] {
    if (high_ != 0) append_utf8(out, kReplacement);
    high_ = 0;
  };
  if (digits_ > 0) {
    if (const int digit = hex_digit(c); digit >= 0) {
      unit_ = unit_ * 16 + static_cast<std::uint32_t>(digit);
      if (--digits_ == 0) take_unit(unit_, out);
      return false;
    }
    digits_ = 0;  // broken: what there was counts, and this byte is itself
    take_unit(unit_, out);
  }
  if (escaped_) {
    escaped_ = false;
    if (c == 'u') {
      unit_ = 0;
      digits_ = 4;
      return false;
    }
    end_half();
    out += unescaped(c);
    return false;
  }
  if (c == '\\') {
    escaped_ = true;
    return false;
  }
  end_half();
  if (c == '"') return true;
  out += c;
  return false;
}

bool EnvelopeReader::in_string() const {
  switch (state_) {
    case State::kKey:
    case State::kName:
    case State::kText:
      return true;
    case State::kRaw:
    case State::kSkip:
      return value_.in_string();
    default:
      return false;
  }
}

EnvelopeReader::Step EnvelopeReader::take_value_begin(char c) {
  value_ = {};
  string_ = {};
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  if (key_ == "name") {
    state_ = State::kName;
    name_.clear();
    return c == '"' && !begun_ ? Step::kMore : Step::kBroken;
  }
  if (!is_arguments || has_arguments_) {
    state_ = State::kSkip;
    return take_value(c);
  }
  has_arguments_ = true;
  if (c == '"') {
    state_ = State::kText;
    return Step::kMore;
  }
  state_ = State::kRaw;
  is_word_ = c != '{' && c != '[';
  return take_value(c);
}

EnvelopeReader::Step EnvelopeReader::take_value(char c) {
  const JsonValueScanner::Step step = value_.push(c);
  if (step == JsonValueScanner::Step::kBehind) {
    if (state_ == State::kRaw && arguments_ == "null") arguments_.clear();
    is_word_ = false;
    state_ = State::kAfterValue;
    return take(c);
  }
  if (state_ == State::kRaw) arguments_ += c;
  if (step == JsonValueScanner::Step::kLast) state_ = State::kAfterValue;
  return Step::kMore;
}

EnvelopeReader::Step EnvelopeReader::take(char c) {
  switch (state_) {
    case State::kKey:
      if (string_.push(c, key_)) state_ = State::kColon;
      return Step::kMore;
    case State::kName:
      if (string_.push(c, name_)) {
        name_done_ = !name_.empty();
        state_ = State::kAfterValue;
        return name_done_ ? Step::kMore : Step::kBroken;
      }
      return Step::kMore;
    case State::kText:
      if (string_.push(c, arguments_)) state_ = State::kAfterValue;
      return Step::kMore;
    case State::kRaw:
    case State::kSkip:
      return take_value(c);
    default:
      break;
  }
  if (is_json_space(c)) return Step::kMore;
  switch (state_) {
    case State::kStart:
      state_ = State::kKeyOrEnd;
      return c == '{' ? Step::kMore : Step::kBroken;
    case State::kKeyOrEnd:
      if (c == '}') return Step::kDone;
      state_ = State::kKey;
      key_.clear();
      string_ = {};
      return c == '"' ? Step::kMore : Step::kBroken;
    case State::kColon:
      state_ = State::kValue;
      return c == ':' ? Step::kMore : Step::kBroken;
    case State::kValue:
      return take_value_begin(c);
    default:
      if (c == '}') return Step::kDone;
      state_ = State::kKeyOrEnd;
      return c == ',' ? Step::kMore : Step::kBroken;
  }
}

void EnvelopeReader::begin(OutputEvents& out) {
  begun_ = true;
  held_.clear();
  out.begin_call(name_);
}

void EnvelopeReader::flush_arguments(OutputEvents& out) {
  // A word is judged when it is whole: null means no arguments.
  if (!begun_ || arguments_.empty() || (is_word_ && state_ == State::kRaw)) return;
  out.arguments(arguments_);
  arguments_.clear();
}

}  // namespace artery::codec
