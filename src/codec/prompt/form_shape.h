#pragma once
// Which built-in form a Jinja source is, seen from its texts alone: for builds without the Rust
// bridge. Errs on the side of "none": a wrong prompt is worse than a refused model. Pure functions,
// any thread.

#include <optional>
#include <string_view>

#include "codec/prompt/builtin_forms.h"

namespace artery::codec {

// "chatml", "llama2", "llama3", "mistral"; nullopt for any other text.
std::optional<FormShape> shape_by_name(std::string_view name);

// The form that prints the same plain chats as this Jinja source; nullopt when it is none of ours.
std::optional<FormShape> shape_of_source(std::string_view source);

}  // namespace artery::codec
