#pragma once
// Reader of GGUF v2 and v3 files (format document: ggml/docs/gguf.md). Owns the mapped file. Every
// count, size and offset is checked before use; memory taken is at most a few times the metadata.
// Immutable after open, any thread. Never reads tensor data.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "model/weight_source.h"

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

class GgufFile final : public WeightSource {
 public:
  // kNotFound, kIo, kBadFile (message: file, what, where), kUnsupported (another version of the
  // format, big-endian). What is odd but harmless (a key that is not UTF-8, a boolean of 7) is told
  // in warnings().
  static Result<std::unique_ptr<GgufFile>> open(
      const std::string& path, const FileSystem& fs = system_file_system()
  );

  const std::string& path() const { return path_; }
  std::uint32_t version() const { return version_; }
  std::uint64_t file_bytes() const { return file_->bytes().size(); }
  std::uint64_t alignment() const { return alignment_; }
  std::uint64_t data_start() const { return data_start_; }
  const FileStamp& stamp() const { return file_->stamp(); }
  std::span<const std::byte> file_contents() const { return file_->bytes(); }
  const std::vector<std::string>& warnings() const { return warnings_; }

  std::span<const GgufKey> metadata() const { return keys_; }
  const GgufValue* find_key(std::string_view key) const;

  // Typed access. Missing: kBadFile "missing metadata K"; wrong type: kBadFile with both types.
  // Unsigned accepts any integer type with a value in [0, 2^63); float any number.
  Result<std::uint64_t> get_unsigned(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<std::span<const std::string_view>> get_strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> get_integers(std::string_view key) const;
  Result<std::vector<float>> get_floats(std::string_view key) const;

  const TensorInfo* find(std::string_view tensor_name) const override;
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const override;
  void release(const TensorInfo& tensor) const override {
    file_->release(tensor.offset, tensor.bytes);
  }

 private:
  friend class GgufParser;
  GgufFile() = default;
  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::uint64_t data_start_ = 0;
  std::vector<GgufKey> keys_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> key_order_;     // indexes of keys_, by key
  std::vector<std::uint32_t> tensor_order_;  // indexes of tensors_, by name
  std::vector<std::string> warnings_;
};

}  // namespace artery::model
