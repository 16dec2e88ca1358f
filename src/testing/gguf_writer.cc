#include "testing/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "tensor/quant/encode.h"

namespace artery::testing {
namespace {

using model::GgufType;

template <typename T>
void append(std::string& out, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  out.append(raw, sizeof value);
}

template <typename T>
std::string raw(T value) {
  std::string out;
  append(out, value);
  return out;
}

void append_string(std::string& out, std::string_view text) {
  append<std::uint64_t>(out, text.size());
  out.append(text);
}

std::string array_head(GgufType type, std::size_t count) {
  std::string out;
  append(out, static_cast<std::uint32_t>(type));
  append<std::uint64_t>(out, count);
  return out;
}

void pad(std::string& out, std::size_t alignment) {
  while (out.size() % alignment != 0) out += '\0';
}

}  // namespace

void GgufWriter::set_raw(std::string_view key, GgufType type, std::string value) {
  auto at = std::ranges::find(keys_, key, &Key::key);
  if (at == keys_.end()) at = keys_.insert(at, Key{std::string(key), type, {}});
  at->type = type;
  at->value = std::move(value);
}

void GgufWriter::set_unsigned(std::string_view key, std::uint32_t value) {
  set_raw(key, GgufType::kUint32, raw(value));
}
void GgufWriter::set_signed(std::string_view key, std::int32_t value) {
  set_raw(key, GgufType::kInt32, raw(value));
}
void GgufWriter::set_float(std::string_view key, float value) {
  set_raw(key, GgufType::kFloat32, raw(value));
}
void GgufWriter::set_bool(std::string_view key, bool value) {
  set_raw(key, GgufType::kBool, raw<std::uint8_t>(value ? 1 : 0));
}
void GgufWriter::set_string(std::string_view key, std::string_view value) {
  std::string out;
  append_string(out, value);
  set_raw(key, GgufType::kString, std::move(out));
}
void GgufWriter::set_strings(std::string_view key, std::span<const std::string> values) {
  std::string out = array_head(GgufType::kString, values.size());
  for (const std::string& value : values) append_string(out, value);
  set_raw(key, GgufType::kArray, std::move(out));
}
void GgufWriter::set_floats(std::string_view key, std::span<const float> values) {
  std::string out = array_head(GgufType::kFloat32, values.size());
  for (const float value : values) append(out, value);
  set_raw(key, GgufType::kArray, std::move(out));
}
void GgufWriter::set_integers(std::string_view key, std::span<const std::int32_t> values) {
  std::string out = array_head(GgufType::kInt32, values.size());
  for (const std::int32_t value : values) append(out, value);
  set_raw(key, GgufType::kArray, std::move(out));
}

void GgufWriter::remove_key(std::string_view key) {
  std::erase_if(keys_, [&](const Key& k) { return k.key == key; });
}

void GgufWriter::set_tensor(
    std::string_view name, tensor::DType type, std::vector<std::int64_t> shape, std::string data
) {
  auto at = std::ranges::find(tensors_, name, &Tensor::name);
  if (at == tensors_.end()) at = tensors_.insert(at, Tensor{std::string(name), type, {}, {}});
  at->type = type;
  at->shape = std::move(shape);
  at->data = std::move(data);
}

void GgufWriter::set_values(
    std::string_view name,
    tensor::DType type,
    std::vector<std::int64_t> shape,
    std::span<const float> values
) {
  CHECK(tensor::quant::can_encode(type));
  const auto cols = static_cast<std::size_t>(shape.at(0));
  const auto bytes = static_cast<std::size_t>(tensor::row_bytes(type, shape.at(0)));
  std::string data(values.size() / cols * bytes, '\0');
  const std::span<std::byte> out = std::as_writable_bytes(std::span<char>(data));
  for (std::size_t row = 0; row < values.size() / cols; ++row) {
    tensor::quant::encode_row(
        type, values.subspan(row * cols, cols), out.subspan(row * bytes, bytes)
    );
  }
  set_tensor(name, type, std::move(shape), std::move(data));
}

void GgufWriter::remove_tensor(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& t) { return t.name == name; });
}

void GgufWriter::set_alignment(std::uint32_t alignment) {
  alignment_ = alignment;
  set_unsigned("general.alignment", alignment);
}

std::string GgufWriter::bytes() const {
  std::string out = "GGUF";
  append<std::uint32_t>(out, 3);
  append<std::uint64_t>(out, tensors_.size());
  append<std::uint64_t>(out, keys_.size());
  for (const Key& key : keys_) {
    append_string(out, key.key);
    append(out, static_cast<std::uint32_t>(key.type));
    out += key.value;
  }
  std::string data;
  for (const Tensor& tensor : tensors_) {
    append_string(out, tensor.name);
    append(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::int64_t size : tensor.shape) append(out, size);
    append(out, static_cast<std::uint32_t>(tensor.type));
    append<std::uint64_t>(out, data.size());
    data += tensor.data;
    pad(data, alignment_);
  }
  pad(out, alignment_);
  return out + data;
}

Result<> GgufWriter::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  const std::string all = bytes();
  file.write(all.data(), static_cast<std::streamsize>(all.size()));
  file.close();
  if (!file) return fail(Code::kIo, "{}: cannot be written", path);
  return {};
}

}  // namespace artery::testing
