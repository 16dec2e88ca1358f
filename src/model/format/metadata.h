#pragma once
// Metadata of a model file as typed values under GGUF's keys (format document: ggml/docs/gguf.md),
// whatever the file is. Values, any thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace artery::model {

enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
std::string_view name(GgufType type);

struct GgufValue;
struct GgufArray {
  GgufType item_type = GgufType::kUint8;
  std::uint64_t count = 0;
  std::span<const std::byte> raw;         // items of fixed-size types, as in the file (unaligned)
  std::vector<std::string_view> strings;  // kString
  std::vector<GgufArray> arrays;          // kArray, nested at most 8 deep
};
struct GgufValue {
  GgufType type = GgufType::kUint8;
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
};
struct GgufKey {
  std::string_view key;
  GgufValue value;
};

}  // namespace artery::model
