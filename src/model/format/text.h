#pragma once
// Bytes of a hostile file as text: UTF-8 validation and printing in messages. Pure functions, any
// thread.

#include <string>
#include <string_view>

namespace artery::model {

// Well-formed UTF-8 (Unicode 15, table 3-7): no surrogates, no overlong forms, at most U+10FFFF.
bool is_utf8(std::string_view text);

// `text` for a message: control characters and bytes that are not UTF-8 as \xNN, cut after
// `bytes_max` bytes with "...".
std::string printable(std::string_view text, std::size_t bytes_max = 80);

}  // namespace artery::model
