#pragma once
// Builds a GgufFile from a mapped file, front to back: header, metadata, tensor list, then the
// checks that need all of it (duplicates, alignment, bounds, overlap). One use, one thread; never
// touches tensor data, never recurses deeper than kArrayDepthMax.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "model/format/gguf.h"

namespace artery::model {

class GgufParser {
 public:
  GgufParser(std::string path, std::unique_ptr<MappedFile> file);
  Result<std::unique_ptr<GgufFile>> parse();

 private:
  static constexpr std::uint64_t kKeysMax = 1 << 16;
  static constexpr std::uint64_t kTensorsMax = 1 << 20;
  static constexpr std::uint64_t kKeyBytesMax = 65535;
  static constexpr std::uint64_t kNameBytesMax = 64;
  static constexpr std::uint64_t kNestedArraysMax = 1 << 18;
  static constexpr std::uint32_t kDimsMax = 4;
  static constexpr int kArrayDepthMax = 8;

  // The next value of the file, false (and nothing consumed) where the file ends before it does.
  template <typename T>
  bool read(T& value) {
    if (left() < sizeof value) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }
  std::uint64_t left() const { return bytes_.size() - at_; }
  // The next `length` bytes, which the caller has checked against left().
  std::string_view take(std::uint64_t length);

  Result<> header();
  Result<> check_version(std::uint32_t version) const;
  Result<> counts();
  Result<> metadata();
  Result<std::string_view> key(std::uint64_t index);
  void judge_key(std::string_view text, std::uint64_t index);
  Result<GgufValue> value(std::string_view key, std::uint32_t type);
  Result<GgufValue> number(std::string_view key, GgufType type);
  Result<std::string_view> string(std::string_view key);
  Result<GgufArray> array(std::string_view key, int depth);
  Result<> array_items(std::string_view key, GgufArray& out, int depth);
  Result<> tensor_list();
  Result<TensorInfo> tensor(std::uint64_t index);
  Result<std::string> tensor_name(std::uint64_t index);
  tl::unexpected<Error> truncated(const TensorInfo& info, std::uint64_t index) const;
  Result<> tensor_shape(TensorInfo& info, std::uint64_t index);
  Result<> tensor_type(TensorInfo& info, std::uint64_t index);
  Result<> tensor_size(TensorInfo& info);
  Result<> alignment();
  Result<> place_tensors();
  Result<> place_tensor(TensorInfo& info) const;
  // "(the metadata count ...)": what a malformed entry at this place of the list may mean.
  std::string_view count_hint(std::uint64_t index) const;

  std::unique_ptr<GgufFile> out_;
  const std::string& path_;
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
  std::uint64_t nested_arrays_ = 0;
};

}  // namespace artery::model
