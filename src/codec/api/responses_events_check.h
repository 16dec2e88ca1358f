#pragma once
// For tests and fuzzing: whether a list of Responses events is one that a typed client accepts:
// numbered without gaps, items framed, deltas joined equal to the done texts and to the response.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/api/output_sink.h"

namespace artery::codec::api {

class ResponsesEventsCheck {
 public:
  // Empty: fine so far; else what is wrong.
  std::string next(const ApiEvent& event) {
    const auto tree = JsonTree::parse(event.data);
    if (!tree) return "no JSON: " + event.data;
    const Json& data = tree->root();
    if (!is(data, "type", event.name)) return "another name: " + event.data;
    const Json* const number = data.find("sequence_number");
    if (number == nullptr || number->whole() != sequence_++) return "numbering: " + event.data;
    const std::string wrong = judge(event.name, data);
    return wrong.empty() ? wrong : wrong + ": " + event.data;
  }
  bool ended() const { return stage_ == Stage::kEnded; }
  // The items of response.completed or response.incomplete.
  const std::vector<std::string>& items() const { return items_; }

 private:
  enum class Stage : std::uint8_t { kNone, kCreated, kRunning, kEnded };

  static bool is(const Json& value, std::string_view key, std::string_view text) {
    const Json* const found = value.find(key);
    return found != nullptr && found->is_text(text);
  }

  std::string judge(std::string_view name, const Json& data) {
    if (name == "response.created") return step(Stage::kNone, Stage::kCreated);
    if (name == "response.in_progress") return step(Stage::kCreated, Stage::kRunning);
    if (stage_ != Stage::kRunning) return "out of its place";
    if (name == "response.completed" || name == "response.incomplete") return end(data);
    const Json* const index = data.find("output_index");
    if (index == nullptr || index->whole() != items_.size()) return "output_index";
    if (name == "response.output_item.added") return add(*data.find("item"));
    if (name == "response.output_item.done") return finish(*data.find("item"));
    if (!is_open_ || !is(data, "item_id", id_)) return "not of the open item";
    if (name == "response.content_part.added" || name == "response.content_part.done") return {};
    if (name.ends_with(".delta")) {
      joined_ += data.find("delta")->text();
      return {};
    }
    for (const std::string_view key : {"text", "arguments", "input"})
      if (const Json* const done = data.find(key))
        return done->is_text(joined_) ? "" : "deltas joined are " + joined_;
    return "unknown event";
  }

  std::string step(Stage from, Stage to) {
    if (stage_ != from) return "out of its place";
    stage_ = to;
    return {};
  }

  std::string add(const Json& item) {
    if (is_open_) return "an item inside another";
    is_open_ = true;
    id_ = item.find("id")->text();
    joined_.clear();
    return is(item, "status", "in_progress") ? "" : "a status that is not in_progress";
  }

  std::string finish(const Json& item) {
    if (!is_open_ || !is(item, "id", id_)) return "not the open item";
    is_open_ = false;
    items_.push_back(to_json(item));
    return is(item, "status", "in_progress") ? "still in progress" : "";
  }

  std::string end(const Json& data) {
    if (is_open_) return "an item is open";
    const Json* const output = data.find("response")->find("output");
    if (output == nullptr || output->items().size() != items_.size()) return "other items";
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (to_json(output->items()[i]) != items_[i]) return "another item " + std::to_string(i);
    return step(Stage::kRunning, Stage::kEnded);
  }

  Stage stage_ = Stage::kNone;
  std::uint64_t sequence_ = 0;
  bool is_open_ = false;
  std::string id_, joined_;
  std::vector<std::string> items_;
};

}  // namespace artery::codec::api
