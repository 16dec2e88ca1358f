#pragma once
// SHA-256 and hexadecimal text. Pure functions and a plain value, any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace artery {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::span<const std::byte> bytes);
std::string hex(std::span<const std::uint8_t> bytes);
// Reads exactly 2 * bytes.size() digits of either case; false: they are not.
[[nodiscard]] bool parse_hex(std::string_view digits, std::span<std::uint8_t> bytes);

}  // namespace artery
