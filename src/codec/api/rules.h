#pragma once
// The rules that the three APIs share when a request becomes a conversation, with the official
// package's texts: model names, thinking and effort, sampling values, max_tokens, stops, tools and
// their choice, the response format, images, missing reasoning. The order in which an API applies
// them decides which error wins; it is the API's own. Pure functions, any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "codec/api/convert.h"
#include "codec/api/tool_schema.h"

namespace artery::codec::api {

template <class T = void>
using Ruled = tl::expected<T, ConvertError>;

// A 400 that the rules give.
tl::unexpected<ConvertError> refused(std::string message);

// kServing: any name, the version of the options.
Ruled<ModelVersion> version_of(std::string_view model, const ConvertOptions& options);

enum class ThinkingType : std::uint8_t { kAdaptive, kEnabled, kDisabled };
inline constexpr std::array<std::string_view, 3> kThinkingTypes = {
    "adaptive", "enabled", "disabled"
};
enum class EffortWish : std::uint8_t {
  kNone,
  kMinimal,
  kLow,
  kMedium,
  kHigh,
  kXHigh,
  kUltra,
  kMax
};
inline constexpr std::array<std::string_view, 8> kEffortWishes = {
    "none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"
};

// Thinking is on or off; on has an effort. The type wins over the effort.
struct Thinking {
  bool on = true;
  std::optional<Effort> effort;
};
Thinking thinking_of(
    std::optional<ThinkingType> type,
    std::optional<EffortWish> effort,
    const ConvertOptions& options
);

Ruled<> check_temperature(std::optional<float> temperature);
Ruled<> check_top_p(std::optional<float> top_p);
// What the engine samples with: recipe's resolution by version and thinking; kServing: as sent.
// Also fills beyond.temperature and beyond.top_p. `request` has its conversation.
void resolve_sampling(
    ConvertedRequest& request,
    std::optional<float> temperature,
    std::optional<float> top_p,
    const ConvertOptions& options
);

enum class AboveBound : std::uint8_t { kRefuse, kLower };
// The wish within [1, the bound for thinking or not].
Ruled<std::optional<std::int64_t>> bounded_max_tokens(
    std::optional<std::uint64_t> wish,
    bool thinking,
    AboveBound above,
    const ConvertOptions& options
);

// Empty ones and more than 16 are refused.
Ruled<> check_stops(std::span<const std::string_view> stops);

// "Invalid 'PLACE': empty string. Expected a string with minimum length 1, but ..."
tl::unexpected<ConvertError> refused_empty(std::string_view place);

struct ToolChoiceWish {
  enum class Kind : std::uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string_view name;  // kNamed
};
// Which of the declared tools the choice leaves (not kNone); sets the conversation's choice. All
// are checked already.
Ruled<std::span<const DeclaredTool>> chosen_tools(
    std::span<const DeclaredTool> tools,
    ToolChoiceWish wish,
    ConvertedRequest& request,
    const ConvertOptions& options
);
// Checks the declared tools and puts those into the conversation that the choice leaves: none, the
// named one, or all. The conversation's thinking is set. A choice without tools is auto. Recipe: no
// forced choice while thinking; kServing: thinking is switched off instead.
Ruled<> apply_tools(
    std::span<const DeclaredTool> tools,
    ToolChoiceWish wish,
    ConvertedRequest& request,
    const ConvertOptions& options
);

// "json" in any case in the content of one message at least.
bool says_json(const Conversation& conversation);

// The parser's options and the constraint that follow from the conversation: tools, required calls,
// json_object, the initial stage (of a prefix too). `constraint_schema`: of a json_schema format,
// as check_response_schema() gave it. recipe refuses strict and non-strict tools in one request.
// Stands behind the checks of stops, stream options and the format, before those of n, sampling and
// max_tokens.
Ruled<> resolve_output(
    ConvertedRequest& request,
    std::optional<JsonText> constraint_schema,
    Rules rules,
    bool names_format = false
);

// What assistant messages without reasoning get: thinking off, none has any; on, a missing one
// becomes an empty one, or with MissingReasoning::kReject the request is refused where, after the
// last user message, one is missing that the model must see again: with tools declared in every
// assistant message, without in those with calls. `field`: what the message calls it.
Ruled<> settle_reasoning(
    Conversation& conversation,
    bool declares_tools,
    std::string_view field,
    const ConvertOptions& options
);

// A message's content as it grows: parts joined by a blank line, images as placeholders (V4: as the
// text [Unsupported Image]).
class ContentBuilder {
 public:
  // `options` must outlive it.
  ContentBuilder(ModelVersion version, const ConvertOptions& options)
      : options_(&options), version_(version) {}
  void text(std::string_view text);
  void image(ImageSource source);
  // No part came.
  bool empty() const { return parts_ == 0; }
  void move_into(Message& message);

 private:
  void join();

  const ConvertOptions* options_;
  ModelVersion version_;
  std::size_t parts_ = 0;
  std::string content_;
  std::vector<std::size_t> places_;
  std::vector<ImageSource> images_;
};

inline constexpr std::array<std::string_view, 4> kImageDetails = {
    "low", "high", "original", "auto"
};

// The source of an image that a request names by a URL: http(s), or data: with base64 of an image.
// `path`: as errors call it. Other URLs: the error of the Chat and Responses APIs.
Ruled<ImageSource> image_of_url(std::string_view url, ImageDetail detail, std::string path);

// The images of the conversation in the order of the prompt.
std::vector<ImageSource> prompt_images(const Conversation& conversation);

// Tool results of each run of user and tool messages in the order of the calls they answer, as the
// encodings show them: indices of the conversation's messages. A run with one result stays.
std::vector<std::size_t> prompt_order(const Conversation& conversation);

}  // namespace artery::codec::api
