#include "bench/sharegpt_reader.h"

#include <boost/json.hpp>
#include <optional>

namespace artery::bench {
namespace json = boost::json;
namespace {

// Cuts the elements out of a JSON array by matching brackets outside of strings.
class Elements {
 public:
  explicit Elements(std::string_view text) : text_(text) {}

  Result<> open() {
    at_ = text_.find_first_not_of(kBlank);
    if (at_ == std::string_view::npos || text_[at_] != '[')
      return fail(Code::kBadFile, "ShareGPT file: does not start with a JSON array");
    ++at_;
    return {};
  }

  // Empty at the end of the array.
  Result<std::string_view> next() {
    at_ = text_.find_first_not_of(count_ == 0 ? kBlank : kBlankOrComma, at_);
    if (at_ == std::string_view::npos)
      return fail(Code::kBadFile, "ShareGPT file: cut off after element {}", count_);
    if (text_[at_] == ']') return std::string_view();
    const std::size_t begin = at_;
    int depth = 0;
    bool in_string = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (in_string) {
        if (c == '\\')
          ++at_;
        else if (c == '"')
          in_string = false;
        continue;
      }
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth <= 0) break;
      if (c == ',' && depth == 0) break;  // an element that is no object
    }
    if (at_ >= text_.size())
      return fail(Code::kBadFile, "ShareGPT file: element {} is cut off", count_);
    if (depth == 0 && text_[at_] != ',') ++at_;
    ++count_;
    return text_.substr(begin, at_ - begin);
  }
  std::size_t count() const { return count_; }

 private:
  static constexpr std::string_view kBlank = " \t\r\n";
  static constexpr std::string_view kBlankOrComma = " \t\r\n,";
  std::string_view text_;
  std::size_t at_ = 0, count_ = 0;
};

const json::string* text_of(const json::value& turn) {
  if (!turn.is_object()) return nullptr;
  for (const char* name : {"value", "content", "text"}) {
    const json::value* value = turn.get_object().if_contains(name);
    if (value != nullptr && value->is_string()) return &value->get_string();
  }
  return nullptr;
}

// Null for a conversation without two turns of text.
std::optional<Conversation> conversation_of(const json::value& element) {
  if (!element.is_object()) return std::nullopt;
  const json::value* turns = element.get_object().if_contains("conversations");
  if (turns == nullptr) turns = element.get_object().if_contains("items");
  if (turns == nullptr || !turns->is_array() || turns->get_array().size() < 2) return std::nullopt;
  const json::string* prompt = text_of(turns->get_array()[0]);
  const json::string* answer = text_of(turns->get_array()[1]);
  if (prompt == nullptr || answer == nullptr) return std::nullopt;
  return Conversation{std::string(*prompt), std::string(*answer)};
}

}  // namespace

Result<std::vector<Conversation>> read_sharegpt(std::string_view text, std::size_t most) {
  std::vector<Conversation> out;
  Elements elements(text);
  TRY(elements.open());
  while (out.size() < most) {
    const std::string_view element = TRY(elements.next());
    if (element.empty()) break;
    json::error_code error;
    const json::value value = json::parse(json::string_view(element.data(), element.size()), error);
    if (error)
      return fail(
          Code::kBadFile,
          "ShareGPT file: element {} is not JSON ({})",
          elements.count() - 1,
          error.message()
      );
    if (auto conversation = conversation_of(value)) out.push_back(std::move(*conversation));
  }
  if (out.empty())
    return fail(Code::kBadFile, "ShareGPT file: no conversation with two turns of text");
  return out;
}

}  // namespace artery::bench
