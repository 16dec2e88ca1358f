#include "kvstore/flat_json.h"

#include <fmt/core.h>

#include <charconv>

namespace artery::kvstore {
namespace {

constexpr std::size_t kMembersMax = 64;

class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool take(char c) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

  bool text(std::string& out) {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\')
        out += c;
      else if (!escape(out))
        return false;
    }
    return false;
  }

  bool number(std::int64_t& out) {
    skip_spaces();
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (error != std::errc{}) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }

  bool is_text() {
    skip_spaces();
    return !rest_.empty() && rest_.front() == '"';
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != rest_.npos)
      rest_.remove_prefix(1);
  }

  bool escape(std::string& out) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (const std::size_t at = kLetters.find(c); at != kLetters.npos) {
      out += kBytes[at];
      return true;
    }
    if (c != 'u' || rest_.size() < 4) return false;
    unsigned code = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + 4, code, 16);
    if (error != std::errc{} || end != rest_.data() + 4 || code >= 0x80) return false;
    rest_.remove_prefix(4);
    out += static_cast<char>(code);
    return true;
  }

  std::string_view rest_;
};

void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::optional<FlatJson> FlatJson::parse(std::string_view line) {
  Reader reader(line);
  FlatJson out;
  if (!reader.take('{')) return std::nullopt;
  if (!reader.take('}')) {
    do {
      std::string name;
      if (!reader.text(name) || !reader.take(':') || out.find(name) != nullptr) return std::nullopt;
      if (out.members_.size() == kMembersMax) return std::nullopt;
      if (reader.is_text()) {
        std::string value;
        if (!reader.text(value)) return std::nullopt;
        out.add(name, std::move(value));
      } else {
        std::int64_t value = 0;
        if (!reader.number(value)) return std::nullopt;
        out.add(name, value);
      }
    } while (reader.take(','));
    if (!reader.take('}')) return std::nullopt;
  }
  if (!reader.at_end()) return std::nullopt;
  return out;
}

const FlatJson::Value* FlatJson::find(std::string_view name) const {
  for (const auto& [member, value] : members_)
    if (member == name) return &value;
  return nullptr;
}

const std::string* FlatJson::text(std::string_view name) const {
  return std::get_if<std::string>(find(name));
}

const std::int64_t* FlatJson::number(std::string_view name) const {
  return std::get_if<std::int64_t>(find(name));
}

FlatJson& FlatJson::add(std::string_view name, std::string value) {
  members_.emplace_back(name, std::move(value));
  return *this;
}

FlatJson& FlatJson::add(std::string_view name, std::int64_t value) {
  members_.emplace_back(name, value);
  return *this;
}

std::string FlatJson::line() const {
  std::string out = "{";
  for (const auto& [name, value] : members_) {
    if (out.size() > 1) out += ',';
    append_text(out, name);
    out += ':';
    if (const auto* text = std::get_if<std::string>(&value))
      append_text(out, *text);
    else
      out += fmt::format("{}", std::get<std::int64_t>(value));
  }
  return out + "}";
}

}  // namespace artery::kvstore
