#include "codec/api/responses_history.h"

#include <fmt/core.h>

#include <unordered_set>

#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"

namespace artery::codec::api {

namespace {

tl::unexpected<ConvertError> unreadable(std::string message) {
  ConvertError error;
  error.stage = ConvertError::Stage::kParse;
  error.message = std::move(message);
  return tl::unexpected(std::move(error));
}

tl::expected<JsonTree, ConvertError> object_of(std::string_view text) {
  auto tree = JsonTree::parse(text);
  if (!tree) return unreadable("invalid JSON request: " + tree.error());
  if (!tree->root().is_object()) return unreadable("invalid request body: expected an object");
  return std::move(*tree);
}

// Items one after the other, without the brackets.
class ItemWriter {
 public:
  void item(const Json& value) {
    separate();
    append_json(text_, value);
  }
  void text(std::string_view item) {
    separate();
    text_ += item;
  }
  std::string array() && { return '[' + std::move(text_) + ']'; }

 private:
  void separate() {
    if (!text_.empty()) text_ += ',';
  }
  std::string text_;
};

std::string user_message(std::string_view text) {
  std::string out = R"({"type":"message","role":"user","content":)";
  put_json_string(out, text);
  return out + '}';
}

bool is_cut_call(const Json& item) {
  const Json* const type = item.find("type");
  const Json* const status = item.find("status");
  return type != nullptr && type->is_string() && type->text().ends_with("_call") &&
         status != nullptr && status->is_text("incomplete");
}

// An output item as input: a message's parts lose their log probabilities.
void put_output_item(std::string& out, const Json& item) {
  if (!item.is_object()) return append_json(out, item);
  out += '{';
  for (const JsonMember& member : item.members()) {
    if (out.back() != '{') out += ',';
    put_json_string(out, member.key);
    out += ':';
    if (member.key != "content" || !member.value.is_array()) {
      append_json(out, member.value);
      continue;
    }
    out += '[';
    for (const Json& part : member.value.items()) {
      if (out.back() != '[') out += ',';
      if (!part.is_object()) {
        append_json(out, part);
        continue;
      }
      std::string fields;
      for (const JsonMember& field : part.members()) {
        if (field.key == "logprobs") continue;
        if (!fields.empty()) fields += ',';
        put_json_string(fields, field.key);
        fields += ':';
        append_json(fields, field.value);
      }
      out += '{' + fields + '}';
    }
    out += ']';
  }
  out += '}';
}

void collect_ids(const Json& items, std::unordered_set<std::string_view>& ids) {
  if (!items.is_array()) return;
  for (const Json& item : items.items())
    if (const Json* const id = item.find("id"); id != nullptr && id->is_string())
      ids.insert(id->text());
}

std::optional<std::string_view> referenced(const Json& item) {
  const Json* const type = item.find("type");
  const Json* const id = item.find("id");
  if (type == nullptr || !type->is_text("item_reference")) return std::nullopt;
  if (id == nullptr || !id->is_string()) return std::nullopt;
  return id->text();
}

tl::expected<void, ConvertError> put_own_items(
    const Json& input,
    const std::unordered_set<std::string_view>& known,
    const ItemLookup& lookup,
    ItemWriter& items
) {
  for (const Json& item : input.items()) {
    const auto id = referenced(item);
    if (!id) {
      items.item(item);
      continue;
    }
    if (known.contains(*id)) continue;
    const std::optional<JsonText> found = lookup ? lookup(*id) : std::nullopt;
    if (!found) {
      ConvertError error;
      error.status = 404;
      error.message = fmt::format("Item with id '{}' not found.", *id);
      error.param = "input";
      return tl::unexpected(std::move(error));
    }
    items.text(*found);
  }
  return {};
}

}  // namespace

tl::expected<JsonText, ConvertError> input_items(std::string_view body) {
  auto tree = object_of(body);
  if (!tree) return tl::unexpected(std::move(tree.error()));
  ItemWriter items;
  const Json* const input = tree->root().find("input");
  if (input != nullptr && input->is_string()) items.text(user_message(input->text()));
  if (input != nullptr && input->is_array())
    for (const Json& item : input->items()) items.item(item);
  return std::move(items).array();
}

std::string previous_response_id(std::string_view body) {
  const auto tree = object_of(body);
  const Json* const id = tree ? tree->root().find("previous_response_id") : nullptr;
  return id != nullptr && id->is_string() ? std::string(id->text()) : std::string();
}

std::optional<JsonText> item_with_id(std::string_view items, std::string_view id) {
  const auto tree = JsonTree::parse(items);
  if (!tree || !tree->root().is_array()) return std::nullopt;
  for (const Json& item : tree->root().items()) {
    const Json* const found = item.find("id");
    if (found == nullptr || !found->is_text(id)) continue;
    std::string out;
    append_json(out, item);
    return out;
  }
  return std::nullopt;
}

tl::expected<JsonText, ConvertError> output_items(std::string_view response) {
  auto tree = object_of(response);
  if (!tree) return tl::unexpected(std::move(tree.error()));
  ItemWriter items;
  const Json* const output = tree->root().find("output");
  if (output != nullptr && output->is_array()) {
    for (const Json& item : output->items()) {
      if (is_cut_call(item)) continue;
      std::string text;
      put_output_item(text, item);
      items.text(text);
    }
  }
  return std::move(items).array();
}

tl::expected<std::string, ConvertError> continued_body(
    const History& history, std::string_view body, const ItemLookup& lookup
) {
  auto tree = object_of(body);
  if (!tree) return tl::unexpected(std::move(tree.error()));
  ItemWriter items;
  std::unordered_set<std::string_view> known;
  const auto before = JsonTree::parse(history.input), answer = JsonTree::parse(history.output);
  for (const auto* const past : {&before, &answer}) {
    if (!*past) return unreadable("the stored history is no JSON: " + past->error());
    collect_ids((*past)->root(), known);
    if ((*past)->root().is_array())
      for (const Json& item : (*past)->root().items()) items.item(item);
  }
  const Json* const input = tree->root().find("input");
  if (input != nullptr && input->is_string()) items.text(user_message(input->text()));
  if (input != nullptr && input->is_array()) {
    auto put = put_own_items(*input, known, lookup, items);
    if (!put) return tl::unexpected(std::move(put.error()));
  }
  const bool is_other =
      input != nullptr && !input->is_string() && !input->is_array() && !input->is_null();
  std::string out = "{";
  for (const JsonMember& member : tree->root().members()) {
    if (member.key == "input" && !is_other) continue;
    if (out.size() > 1) out += ',';
    put_json_string(out, member.key);
    out += ':';
    append_json(out, member.value);
  }
  if (is_other) return out + '}';  // conversion says what is wrong with it
  const std::string array = std::move(items).array();
  // Nothing kept and nothing sent: instructions may stand alone.
  if (array != "[]" || (input != nullptr && input->is_array())) {
    if (out.size() > 1) out += ',';
    out += R"("input":)" + array;
  }
  return out + '}';
}

std::optional<std::string_view> response_of_item(std::string_view item_id) {
  const std::size_t begin = item_id.find('_'), end = item_id.rfind('_');
  if (begin == std::string_view::npos || end <= begin + 1) return std::nullopt;
  return item_id.substr(begin + 1, end - begin - 1);
}

}  // namespace artery::codec::api
