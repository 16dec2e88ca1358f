#include "model/format/model_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "model/format/text.h"

namespace artery::model {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "float32",
    "bool",
    "string",
    "array",
    "uint64",
    "int64",
    "float64",
};

std::string type_text(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value.value))
    return fmt::format("an array of {}", name(array->item_type));
  return std::string(name(value.type));
}

// The items of an array of numbers, converted; unaligned in the file.
template <typename File, typename Out>
void append_items(const GgufArray& array, std::vector<Out>& out) {
  for (std::uint64_t i = 0; i < array.count; ++i) {
    File item;
    std::memcpy(&item, array.raw.data() + i * sizeof item, sizeof item);
    out.push_back(static_cast<Out>(item));
  }
}

template <typename Out>
bool append_numbers(const GgufArray& array, std::vector<Out>& out) {
  switch (array.item_type) {
    case GgufType::kUint8:
      append_items<std::uint8_t>(array, out);
      return true;
    case GgufType::kInt8:
      append_items<std::int8_t>(array, out);
      return true;
    case GgufType::kUint16:
      append_items<std::uint16_t>(array, out);
      return true;
    case GgufType::kInt16:
      append_items<std::int16_t>(array, out);
      return true;
    case GgufType::kUint32:
      append_items<std::uint32_t>(array, out);
      return true;
    case GgufType::kInt32:
      append_items<std::int32_t>(array, out);
      return true;
    case GgufType::kUint64:
      append_items<std::uint64_t>(array, out);
      return true;
    case GgufType::kInt64:
      append_items<std::int64_t>(array, out);
      return true;
    default:
      return false;
  }
}

Result<const GgufValue*> required(const ModelFile& file, std::string_view key) {
  const GgufValue* value = file.find_key(key);
  if (value == nullptr) return fail(Code::kBadFile, "{}: missing metadata {}", file.path(), key);
  return value;
}

tl::unexpected<Error> wrong_type(
    const ModelFile& file, std::string_view key, const GgufValue& value, std::string_view expected
) {
  return fail(
      Code::kBadFile,
      "{}: {} has type {}, expected {}",
      file.path(),
      key,
      type_text(value),
      expected
  );
}

}  // namespace

std::string_view name(GgufType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kTypeNames.size() ? kTypeNames[index] : "unknown";
}

std::uint64_t ModelFile::file_bytes() const {
  std::uint64_t sum = 0;
  for (const MappedFile* file : files()) sum += file->bytes().size();
  return sum;
}

const GgufValue* ModelFile::find_key(std::string_view key) const {
  const auto at =
      std::ranges::lower_bound(key_order_, key, {}, [&](std::uint32_t i) { return keys_[i].key; });
  return at != key_order_.end() && keys_[*at].key == key ? &keys_[*at].value : nullptr;
}

Result<> ModelFile::order_keys() {
  key_order_.resize(keys_.size());
  std::iota(key_order_.begin(), key_order_.end(), 0u);
  auto key_of = [&](std::uint32_t i) { return keys_[i].key; };
  std::ranges::sort(key_order_, {}, key_of);
  const auto twin = std::ranges::adjacent_find(key_order_, {}, key_of);
  if (twin == key_order_.end()) return {};
  return fail(Code::kBadFile, "{}: duplicate metadata key {}", path_, printable(keys_[*twin].key));
}

Result<> ModelFile::order_tensors() {
  tensor_order_.resize(tensors_.size());
  std::iota(tensor_order_.begin(), tensor_order_.end(), 0u);
  auto name_of = [&](std::uint32_t i) -> std::string_view { return tensors_[i].name; };
  std::ranges::sort(tensor_order_, {}, name_of);
  const auto twin = std::ranges::adjacent_find(tensor_order_, {}, name_of);
  if (twin == tensor_order_.end()) return {};
  return fail(
      Code::kBadFile, "{}: duplicate tensor name {}", path_, printable(tensors_[*twin].name)
  );
}

Result<std::uint64_t> ModelFile::get_unsigned(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  if (const auto* number = std::get_if<std::int64_t>(&value.value)) {
    if (*number >= 0) return static_cast<std::uint64_t>(*number);
    return fail(
        Code::kBadFile,
        "{}: {} is {} ({}), expected a non-negative uint32",
        path_,
        key,
        *number,
        name(value.type)
    );
  }
  const auto* number = std::get_if<std::uint64_t>(&value.value);
  if (number == nullptr) return wrong_type(*this, key, value, "uint32");
  if (*number > INT64_MAX)
    return fail(Code::kBadFile, "{}: {} is {}, too large", path_, key, *number);
  return *number;
}

Result<double> ModelFile::get_float(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  if (const auto* number = std::get_if<double>(&value.value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value.value))
    return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::uint64_t>(&value.value))
    return static_cast<double>(*number);
  return wrong_type(*this, key, value, "float32");
}

Result<bool> ModelFile::get_bool(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  return wrong_type(*this, key, value, "bool");
}

Result<std::string_view> ModelFile::get_string(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  if (const auto* text = std::get_if<std::string_view>(&value.value)) return *text;
  return wrong_type(*this, key, value, "string");
}

Result<std::span<const std::string_view>> ModelFile::get_strings(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr || array->item_type != GgufType::kString)
    return wrong_type(*this, key, value, "an array of strings");
  return std::span<const std::string_view>(array->strings);
}

Result<std::vector<std::int64_t>> ModelFile::get_integers(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  const auto* array = std::get_if<GgufArray>(&value.value);
  std::vector<std::int64_t> out;
  if (array == nullptr || !append_numbers(*array, out))
    return wrong_type(*this, key, value, "an array of integers");
  return out;
}

Result<std::vector<float>> ModelFile::get_floats(std::string_view key) const {
  const GgufValue& value = *TRY(required(*this, key));
  const auto* array = std::get_if<GgufArray>(&value.value);
  std::vector<float> out;
  if (array != nullptr && array->item_type == GgufType::kFloat32) {
    append_items<float>(*array, out);
  } else if (array != nullptr && array->item_type == GgufType::kFloat64) {
    append_items<double>(*array, out);
  } else {
    return wrong_type(*this, key, value, "an array of float32");
  }
  return out;
}

const TensorInfo* ModelFile::find(std::string_view tensor_name) const {
  const auto at = std::ranges::lower_bound(
      tensor_order_,
      tensor_name,
      {},
      [&](std::uint32_t i) -> std::string_view { return tensors_[i].name; }
  );
  const bool found = at != tensor_order_.end() && tensors_[*at].name == tensor_name;
  return found ? &tensors_[*at] : nullptr;
}

}  // namespace artery::model
