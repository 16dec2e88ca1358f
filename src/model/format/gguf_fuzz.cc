// Any bytes as a GGUF file: opening and checking must answer, within the memory of a few times the
// file, and what is accepted must keep its promises.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "model/load.h"
#include "testing/mem_file_system.h"

using artery::model::GgufFile;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  artery::testing::MemFileSystem files;
  files.add("fuzz.gguf", std::string(reinterpret_cast<const char*>(data), size));
  const auto file = GgufFile::open("fuzz.gguf", files);
  if (!file) {
    CHECK(file.error().message.starts_with("fuzz.gguf"));
    return 0;
  }
  std::vector<std::byte> scratch;
  for (const auto& tensor : (*file)->tensors()) {
    CHECK((*file)->find(tensor.name) == &tensor);
    CHECK((*file)->rows(tensor, 0, tensor.rows(), scratch).value().size() == tensor.bytes);
  }
  for (const auto& key : (*file)->metadata()) CHECK((*file)->find_key(key.key) == &key.value);
  const auto info = artery::model::check_model(**file);
  if (info) {
    CHECK(info->vocab_size > 0 && info->context_length > 0 && info->layers > 0);
    CHECK(static_cast<std::uint64_t>(info->weight_bytes) <= size);
  } else {
    CHECK(info.error().message.starts_with("fuzz.gguf"));
  }
  return 0;
}
