#pragma once
// A chat template in Jinja, run by the Rust bridge. Immutable after construction, any thread.
// Compiled only when the bridge is (cmake/rust.cmake). Private to the prompt folder and its tests.

#include <memory>
#include <string_view>

#include "base/result.h"
#include "codec/prompt/chat_template.h"

namespace artery::codec {

// kBadFile: line and reason.
Result<std::unique_ptr<ChatTemplate>> make_jinja(std::string_view source, TemplateTokens tokens);

}  // namespace artery::codec
