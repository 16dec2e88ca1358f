#pragma once
// GPT-2's visible alphabet: each byte written as one printable character, so that a vocabulary of
// bytes can be a list of strings (bytes_to_unicode in GPT-2's encoder.py). Pure functions, any
// thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace artery::codec {

// UTF-8 of the character that stands for `byte`.
std::string visible_byte(std::uint8_t byte);

// The bytes that a token stands for; a text with any character outside the alphabet stands for
// itself.
std::string bytes_of_visible(std::string_view text);
// The same into `out`, whose memory is used again.
void bytes_of_visible(std::string_view text, std::string& out);

}  // namespace artery::codec
