#pragma once
// How JSON is spelled: compact as serde_json writes it (what conversation.h calls JsonText), and as
// Python's json.dumps(ensure_ascii=False) does, with its numbers or with serde's. Strings and whole
// numbers are spelled alike in all of them. Pure functions, any thread; linear in the text. Never
// changes the order of keys.

#include <string>
#include <string_view>

#include "codec/api/conversation.h"

namespace artery::codec::api {

class Json;

struct JsonStyle {
  bool spaced = false;          // ", " and ": " in place of "," and ":"
  bool python_numbers = false;  // 1e-05 and 1.5e-07 in place of 0.00001 and 1.5e-7
};
inline constexpr JsonStyle kSerdeStyle;
inline constexpr JsonStyle kSpacedSerdeStyle{.spaced = true};
inline constexpr JsonStyle kPythonStyle{.spaced = true, .python_numbers = true};

void append_json(std::string& out, const Json& value, JsonStyle style = kSerdeStyle);
JsonText to_json(const Json& value);

// A text in kSerdeStyle in another one, without reading it into a tree. Text in another style or
// that is no JSON gives some text, never an error.
void append_restyled(std::string& out, std::string_view compact, JsonStyle style);

// The shortest digits that give the value back, as Python's repr writes them; not finite: null.
void append_python_number(std::string& out, double value);

}  // namespace artery::codec::api
