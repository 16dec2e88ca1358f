#include "testing/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "tensor/quant/encode.h"

namespace artery::testing {

void SafetensorsWriter::set(
    std::string_view name, std::string_view dtype, std::vector<std::int64_t> shape, std::string data
) {
  auto at = std::ranges::find(tensors_, name, &Tensor::name);
  if (at == tensors_.end()) at = tensors_.insert(at, Tensor{std::string(name), {}, {}, {}});
  at->dtype = dtype;
  at->shape = std::move(shape);
  at->data = std::move(data);
}

void SafetensorsWriter::set_values(
    std::string_view name,
    std::string_view dtype,
    std::vector<std::int64_t> shape,
    std::span<const float> values
) {
  const tensor::DType type = dtype == "F32"    ? tensor::DType::kF32
                             : dtype == "BF16" ? tensor::DType::kBF16
                                               : tensor::DType::kF16;
  CHECK(dtype == tensor::name(type));
  const std::int64_t count = static_cast<std::int64_t>(values.size());
  std::string data(static_cast<std::size_t>(tensor::row_bytes(type, count)), '\0');
  tensor::quant::encode_row(type, values, std::as_writable_bytes(std::span<char>(data)));
  set(name, dtype, std::move(shape), std::move(data));
}

void SafetensorsWriter::remove(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& t) { return t.name == name; });
}

bool SafetensorsWriter::has(std::string_view name) const {
  return std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end();
}

std::vector<std::string> SafetensorsWriter::names() const {
  std::vector<std::string> out;
  for (const Tensor& tensor : tensors_) out.push_back(tensor.name);
  return out;
}

std::string SafetensorsWriter::bytes(std::size_t first, std::size_t last) const {
  std::string header = "{";
  std::string data;
  for (std::size_t i = first; i < std::min(last, tensors_.size()); ++i) {
    const Tensor& tensor = tensors_[i];
    header += fmt::format(
        "{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
        i == first ? "" : ",",
        tensor.name,
        tensor.dtype,
        fmt::join(tensor.shape, ","),
        data.size(),
        data.size() + tensor.data.size()
    );
    data += tensor.data;
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  const std::uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::vector<std::pair<std::string, std::string>> SafetensorsWriter::files(int shards) const {
  if (shards == 1) return {{"model.safetensors", bytes()}};
  std::vector<std::pair<std::string, std::string>> out;
  std::string index = "{\"metadata\":{\"total_size\":0},\"weight_map\":{";
  const auto count = static_cast<std::size_t>(shards);
  for (std::size_t s = 0; s < count; ++s) {
    const std::size_t first = tensors_.size() * s / count;
    const std::size_t last = tensors_.size() * (s + 1) / count;
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards);
    for (std::size_t i = first; i < last; ++i)
      index += fmt::format("{}\"{}\":\"{}\"", i == 0 ? "" : ",", tensors_[i].name, name);
    out.emplace_back(name, bytes(first, last));
  }
  out.emplace_back("model.safetensors.index.json", index + "}}");
  return out;
}

void SafetensorsWriter::add_to(MemFileSystem& to, const std::string& folder, int shards) const {
  for (auto& [name, bytes] : files(shards)) to.add(folder + "/" + name, bytes);
}

Result<> SafetensorsWriter::write_to(const std::string& folder, int shards) const {
  for (const auto& [name, bytes] : files(shards)) {
    const std::string path = folder + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) return fail(Code::kIo, "{}: cannot be written", path);
  }
  return {};
}

}  // namespace artery::testing
