#include "codec/api/convert.h"

#include "codec/api/body.h"
#include "codec/api/convert_parts.h"

namespace artery::codec::api {

Converted convert(Api api, std::string_view text, const ConvertOptions& options) {
  Body body(text);
  if (!body.ok()) return tl::unexpected(body.error());
  switch (api) {
    case Api::kChat:
      return convert_chat(body, options);
    case Api::kMessages:
      return convert_messages(body, options);
    case Api::kResponses:
      return convert_responses(body, options);
  }
  return tl::unexpected(ConvertError());
}

std::optional<Api> api_of(std::string_view name) {
  if (name == "chat") return Api::kChat;
  if (name == "messages") return Api::kMessages;
  if (name == "responses") return Api::kResponses;
  return std::nullopt;
}

}  // namespace artery::codec::api
