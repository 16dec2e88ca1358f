#pragma once
// CRC-32C (Castagnoli, RFC 3720 appendix B.4), the checksum of everything a store puts on a disk.
// With the processor's own instruction where it has one. Pure functions, any thread.

#include <cstddef>
#include <cstdint>
#include <span>

namespace artery {

// Of `before`'s bytes followed by `bytes`: crc32c(b, crc32c(a)) == crc32c(a and b joined).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// The same by tables, on any processor.
std::uint32_t crc32c_plain(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace artery
