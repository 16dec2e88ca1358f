#pragma once
// What a file that is not a GGUF (or not safetensors) is instead: people point at failed downloads,
// LFS pointers and other formats. Pure, any thread.

#include <cstddef>
#include <span>
#include <string>

namespace artery::model {

// One clause for a message that starts with "not a GGUF file: ", from the first bytes of a file
// that does not begin with the GGUF magic. What it is and what to do.
std::string describe_foreign_file(std::span<const std::byte> bytes);

// A plausible length and the start of a JSON object.
bool looks_like_safetensors(std::span<const std::byte> bytes);

// The same as the first for a file that should be safetensors: empty where nothing known is
// recognized.
std::string describe_foreign_head(std::span<const std::byte> bytes);

}  // namespace artery::model
