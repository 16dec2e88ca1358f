#pragma once
// A conversation as the three public APIs mean it, after their requests were read and checked and
// before a model's encoding renders it. The same value for every API and every model. Values, any
// thread. JSON inside it is text: compact, keys in the order given, numbers spelled as serde_json
// does (1.5e-7, 0.00001, 1e+16), of equal keys the last value at the first place; encodings that
// spell numbers otherwise restyle it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace artery::codec::api {

using JsonText = std::string;

enum class Role : std::uint8_t { kSystem, kUser, kAssistant, kTool, kLatestReminder };

enum class ToolChoice : std::uint8_t { kAuto, kNone, kRequired };

enum class Effort : std::uint8_t { kLow, kHigh, kXHigh, kMax };

enum class ResponseFormat : std::uint8_t { kText, kJsonObject, kJsonSchema, kRegex };

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // as sent: mostly, but not always, a JSON object
  bool operator==(const ToolCall&) const = default;
};

struct Tool {
  std::string name;
  std::optional<std::string> description;
  JsonText parameters;  // a JSON Schema; "{}" when none was given
  std::optional<bool> strict;
  bool defer_loading = false;
  bool operator==(const Tool&) const = default;
};

enum class ImageDetail : std::uint8_t { kLow, kHigh, kOriginal, kAuto };

struct ImageSource {
  enum class Kind : std::uint8_t { kDataUrl, kUrl, kBytes };
  Kind kind = Kind::kDataUrl;
  ImageDetail detail = ImageDetail::kHigh;
  std::string data;  // the data URL, the URL, or the encoded bytes
  std::string path;  // where it stood in the request, for errors
  bool operator==(const ImageSource&) const = default;
};

struct Message {
  Role role = Role::kUser;
  std::string content;  // UTF-8
  // Where in `content` conversion put an image's placeholder (byte offsets of its first byte,
  // ascending), one per image. The same spelling elsewhere is text.
  std::vector<std::size_t> image_places;
  std::vector<ImageSource> images;
  // kAssistant
  std::optional<std::string> reasoning;
  std::vector<ToolCall> calls;
  bool is_prefix = false;  // the answer goes on from here
  // kTool
  std::string call_id;
  // kSystem: tools that a mid-conversation system turn adds
  std::vector<Tool> tools;
  bool operator==(const Message&) const = default;
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<Tool> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  bool thinking = true;
  std::optional<Effort> effort;
  ResponseFormat format = ResponseFormat::kText;
  JsonText schema;    // kJsonSchema, as the request gave it
  std::string regex;  // kRegex
  // Tools shown to the model and calls expected.
  bool has_active_tools() const { return !tools.empty() && tool_choice != ToolChoice::kNone; }
  bool operator==(const Conversation&) const = default;
};

}  // namespace artery::codec::api
