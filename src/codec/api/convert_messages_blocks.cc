#include "codec/api/convert_messages_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "codec/api/json_style.h"
#include "codec/api/serde_words.h"

namespace artery::codec::api {
namespace {

using Kind = MessagesBlock::Kind;

#define RULE(expr)                                                                    \
  do {                                                                                \
    if (auto ruled = (expr); !ruled) return tl::unexpected(std::move(ruled.error())); \
  } while (false)

constexpr std::size_t kMaxLinkBytes = 8192;

std::string document_text(const MessagesBlock& block) {
  return fmt::format("[Unsupported document type: {}]", block.text);
}

bool starts_with_http(std::string_view url) {
  constexpr std::string_view kHttp = "http";
  return url.size() >= kHttp.size() &&
         std::ranges::equal(kHttp, url.substr(0, kHttp.size()), [](char wanted, char c) {
           return c == wanted || c == wanted - 32;
         });
}

// `place`: in errors; `path`: what the source is called afterwards.
Ruled<ImageSource> image_source(
    const MessagesImage& image, const std::string& place, std::string path
) {
  ImageSource source;
  source.path = std::move(path);
  if (image.kind == MessagesImage::Kind::kFile) {
    return refused(fmt::format(
        "{}: file_id is not supported. Pass the image as a base64 data url instead.", place
    ));
  }
  if (image.kind == MessagesImage::Kind::kBase64) {
    if (!is_strict_base64(image.data))
      return refused(fmt::format("{}: base64 decode error", place));
    source.kind = ImageSource::Kind::kDataUrl;
    source.data = fmt::format("data:{};base64,{}", image.mime, image.data);
    return source;
  }
  if (!starts_with_http(image.data))
    return refused(fmt::format("{}: invalid url: {}", place, rust_debug(image.data)));
  if (image.data.size() > kMaxLinkBytes) {
    return refused(fmt::format(
        "{}: external link length {} too long, max link length {}. Consider passing file data "
        "directly with base64 data url instead.",
        place,
        image.data.size(),
        kMaxLinkBytes
    ));
  }
  source.kind = ImageSource::Kind::kUrl;
  source.data = image.data;
  return source;
}

class BlockConverter {
 public:
  BlockConverter(
      std::span<const DeclaredTool> tools, ModelVersion version, const ConvertOptions& options
  )
      : options_(options), version_(version), is_v4_(version == ModelVersion::kV4) {
    for (const DeclaredTool& tool : tools) tools_.insert(tool.name);
  }

  Ruled<ConvertedBlocks> convert(std::span<const MessagesMessage> messages) {
    for (index_ = 0; index_ < messages.size(); ++index_) {
      const MessagesMessage& message = messages[index_];
      const bool may_be_empty = message.role == Role::kSystem;
      if (message.is_list && message.blocks.empty() && !may_be_empty)
        return refused(fmt::format("messages.{}: all messages must have non-empty content", index_)
        );
      if (message.role == Role::kUser) {
        RULE(user(message));
      } else if (message.role == Role::kAssistant) {
        RULE(assistant(message));
      } else {
        RULE(system(message));
      }
    }
    if (!waiting_.empty()) return unanswered(fmt::format("messages.{}:", caller_));
    return std::move(out_);
  }

 private:
  void add(Message message, std::vector<std::string_view> additions = {}) {
    out_.messages.push_back(std::move(message));
    out_.additions.push_back(std::move(additions));
  }

  // `place`: with the colon and the blank, where the official text has one.
  tl::unexpected<ConvertError> unanswered(const std::string& place) const {
    return refused(fmt::format(
        "{}`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message.",
        place,
        fmt::join(waiting_, ", ")
    ));
  }

  // Blocks that may not stand in a message of that role.
  Ruled<> check_place(const MessagesBlock& block, Role role) const {
    const auto only_in = [&](std::string_view blocks, std::string_view roles) {
      return refused(fmt::format(
          "messages.{}: `{}` blocks can only be in `{}` messages", index_, blocks, roles
      ));
    };
    const bool is_use = block.kind == Kind::kToolUse || block.kind == Kind::kServerToolUse ||
                        block.kind == Kind::kWebSearchResult;
    if (is_use && role != Role::kAssistant) return only_in("tool_use", "assistant");
    if (block.kind == Kind::kThinking && role != Role::kAssistant) {
      return refused(fmt::format(
          "messages.{}.content: thinking blocks may only be in `assistant` messages", index_
      ));
    }
    if (block.kind == Kind::kToolResult && role != Role::kUser)
      return only_in("tool_result", "user");
    if (block.kind == Kind::kToolAddition && role != Role::kSystem)
      return only_in("tool_addition", "system");
    return {};
  }

  // Text, an image or a document into `content`.
  Ruled<> part(
      const MessagesBlock& block,
      const std::string& place,
      const std::string& path,
      ContentBuilder& content
  ) {
    if (block.kind == Kind::kDocument) {
      content.text(document_text(block));
    } else if (block.kind == Kind::kText) {
      content.text(block.text);
    } else if (block.kind == Kind::kSearchResult) {
      for (const MessagesBlock& text : block.parts) content.text(text.text);
    } else if (block.kind == Kind::kImage && is_v4_) {
      content.image({});
    } else if (block.kind == Kind::kImage) {
      auto source = image_source(block.image, place, path);
      if (!source) return tl::unexpected(std::move(source.error()));
      content.image(std::move(*source));
    }
    return {};
  }

  Ruled<> user(const MessagesMessage& message) {
    std::vector<std::string_view> references;
    answered_.clear();
    for (std::size_t i = 0; i < message.blocks.size(); ++i) {
      const MessagesBlock& block = message.blocks[i];
      RULE(check_place(block, Role::kUser));
      if (!waiting_.empty() && block.kind != Kind::kToolResult)
        return unanswered(fmt::format("messages.{}: ", index_));
      if (block.kind == Kind::kIgnored) continue;
      Message made;
      ContentBuilder content(version_, options_);
      if (block.kind == Kind::kToolResult) {
        RULE(result(block, i, made, content, references));
      } else {
        const std::string place = fmt::format("messages.{}.content[{}]", index_, i);
        RULE(part(block, place, place, content));
      }
      content.move_into(made);
      add(std::move(made));
    }
    if (!waiting_.empty()) return unanswered(fmt::format("messages.{}:", caller_));
    if (!references.empty() && !is_v4_) {
      Message turn;
      turn.role = Role::kSystem;
      add(std::move(turn), std::move(references));
    }
    return {};
  }

  Ruled<> result(
      const MessagesBlock& block,
      std::size_t at,
      Message& made,
      ContentBuilder& content,
      std::vector<std::string_view>& references
  ) {
    if (answered_.contains(block.id)) {
      return refused(fmt::format(
          "messages.{}.content.{}: each tool_use must have a single result. Found multiple "
          "`tool_result` blocks with id: {}",
          index_,
          at,
          block.id
      ));
    }
    if (waiting_.erase(block.id) == 0) {
      return refused(fmt::format(
          "unexpected `messages.{}.content.{}: tool_use_id` found in `tool_result` blocks: {}. "
          "Each `tool_result` block must have a corresponding `tool_use` block in the previous "
          "message.",
          index_,
          at,
          block.id
      ));
    }
    answered_.insert(block.id);
    made.role = Role::kTool;
    made.call_id = block.id;
    const std::string path = fmt::format("messages.{}.content.{}.tool_result", index_, at);
    for (std::size_t i = 0; i < block.parts.size(); ++i) {
      const MessagesBlock& one = block.parts[i];
      if (one.kind != Kind::kToolReference) {
        RULE(part(one, fmt::format("{}.content[{}]", path, i), path, content));
        continue;
      }
      if (!tools_.contains(one.name)) {
        return refused(fmt::format(
            "messages.{}.content.{}: tool reference '{}' not found in available tools",
            index_,
            at,
            one.name
        ));
      }
      content.text(one.name);
      references.push_back(one.name);
    }
    return {};
  }

  Ruled<> assistant(const MessagesMessage& message) {
    if (!waiting_.empty()) return unanswered(fmt::format("messages.{}: ", index_));
    Message made;
    made.role = Role::kAssistant;
    for (std::size_t i = 0; i < message.blocks.size(); ++i) {
      const MessagesBlock& block = message.blocks[i];
      RULE(check_place(block, Role::kAssistant));
      switch (block.kind) {
        case Kind::kThinking:
          if (made.reasoning)
            *made.reasoning += "\n\n" + std::string(block.text);
          else
            made.reasoning = std::string(block.text);
          break;
        case Kind::kToolUse:
          RULE(use(block, i, made));
          break;
        case Kind::kServerToolUse:
        case Kind::kWebSearchResult:
          if (options_.messages_web_search == WebSearch::kReject)
            return refused("Unsupported content block: server tools are not supported");
          break;
        case Kind::kIgnored:
          break;
        default:
          if (!waiting_.empty()) return unanswered(fmt::format("messages.{}.{}: ", index_, i));
          RULE(said(block, i, made.content));
      }
    }
    add(std::move(made));
    return {};
  }

  // What is empty at the beginning leaves no blank line.
  Ruled<> said(const MessagesBlock& block, std::size_t at, std::string& content) {
    const std::string place = fmt::format("messages.{}.content[{}]", index_, at);
    ContentBuilder one(version_, options_);
    RULE(part(block, place, place, one));
    if (block.kind == Kind::kImage && !is_v4_)
      return refused("Image in assistant message is unsupported");
    Message made;
    one.move_into(made);
    if (!content.empty()) content += "\n\n";
    content += made.content;
    return {};
  }

  Ruled<> use(const MessagesBlock& block, std::size_t at, Message& made) {
    if (!waiting_.insert(block.id).second) {
      return refused(
          fmt::format("messages.{}.content.{}: `tool_use` ids must be unique", index_, at)
      );
    }
    caller_ = index_;
    ToolCall& call = made.calls.emplace_back();
    call.id = block.id;
    call.name = block.name;
    append_json(call.arguments, *block.input, kSpacedSerdeStyle);
    return {};
  }

  Ruled<> system(const MessagesMessage& message) {
    if (!waiting_.empty()) return unanswered(fmt::format("messages.{}: ", index_));
    Message made;
    made.role = Role::kSystem;
    ContentBuilder content(version_, options_);
    std::vector<std::string_view> additions;
    const std::string path = fmt::format("messages.{}", index_);
    for (std::size_t i = 0; i < message.blocks.size(); ++i) {
      const MessagesBlock& block = message.blocks[i];
      RULE(check_place(block, Role::kSystem));
      if (block.kind != Kind::kToolAddition) {
        RULE(part(block, fmt::format("{}.content[{}]", path, i), path, content));
        continue;
      }
      if (!tools_.contains(block.name)) {
        return refused(fmt::format(
            "{}.content.{}: `tool_addition` references unknown tool '{}'", path, i, block.name
        ));
      }
      additions.push_back(block.name);
    }
    content.move_into(made);
    if (!is_v4_) {
      add(std::move(made), std::move(additions));
    } else if (!made.content.empty()) {
      // V4 knows no system turns in the middle.
      made.role = Role::kUser;
      made.content = fmt::format("<system-reminder>\n{}\n</system-reminder>", made.content);
      add(std::move(made));
    }
    return {};
  }

  const ConvertOptions& options_;
  const ModelVersion version_;
  const bool is_v4_;
  std::unordered_set<std::string_view> tools_;
  ConvertedBlocks out_;
  std::size_t index_ = 0, caller_ = 0;
  // Calls of the latest assistant message that wait for results, in the order errors name them.
  std::set<std::string_view> waiting_;
  std::unordered_set<std::string_view> answered_;  // by the message at hand
};

#undef RULE

}  // namespace

bool is_strict_base64(std::string_view text) {
  std::string_view body = text;
  while (body.ends_with('=')) body.remove_suffix(1);
  const auto value = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (!std::ranges::all_of(body, [&](char c) { return value(c) >= 0; })) return false;
  const std::size_t rest = body.size() % 4;
  if (rest == 0) return true;
  if (rest == 1 || body.size() == text.size()) return false;
  return (value(body.back()) & (rest == 2 ? 15 : 3)) == 0;
}

Ruled<ConvertedBlocks> convert_blocks(
    std::span<const MessagesMessage> messages,
    std::span<const DeclaredTool> tools,
    ModelVersion version,
    const ConvertOptions& options
) {
  return BlockConverter(tools, version, options).convert(messages);
}

}  // namespace artery::codec::api
