#pragma once
// The three looks at a JSON Schema, in the order in which their errors win: the values of its
// keywords, the addresses in it, and what it refers to. Texts are those of the validator that the
// official package uses. Pure, any thread; each is linear in the schema.

#include <string_view>

#include "codec/api/schema_drafts.h"
#include "codec/api/tool_schema.h"

namespace artery::codec::api {

Checked<void> check_keywords(const Json& schema, const SchemaDraft& draft);
// References that leave the schema, addresses that are none, regular expressions, references to
// nowhere.
Checked<void> check_references(const Json& schema, const SchemaDraft& draft);

// A regular expression as ECMAScript writes it, with look-around; Rust's flags and named groups
// too.
bool is_regex(std::string_view pattern);

}  // namespace artery::codec::api
