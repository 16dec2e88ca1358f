// Any bytes as a safetensors header, and as the config.json of a folder whose tensors are sound:
// opening must answer, and what is accepted must keep its promises.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "model/format/open.h"
#include "model/load.h"
#include "testing/mem_file_system.h"
#include "testing/safetensors_writer.h"

namespace {

using artery::testing::MemFileSystem;

void check_rows(const artery::model::ModelFile& file) {
  std::vector<std::byte> scratch;
  for (const auto& tensor : file.tensors()) {
    CHECK(file.find(tensor.name) == &tensor);
    const auto rows = file.rows(tensor, 0, tensor.rows(), scratch);
    if (rows)
      CHECK(rows->size() == tensor.bytes);
    else
      CHECK(rows.error().code == artery::Code::kBadFile);
  }
}

void as_file(const std::string& bytes) {
  MemFileSystem files;
  files.add("f.safetensors", bytes);
  const auto file = artery::model::open_model("f.safetensors", files);
  if (file)
    check_rows(**file);
  else
    CHECK(file.error().message.starts_with("f.safetensors"));
}

// A llama of one layer, so that configs near the right one are accepted.
void as_config(const std::string& bytes) {
  artery::testing::SafetensorsWriter writer;
  auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    writer.set_values(
        name, "BF16", std::move(shape), std::vector<float>(static_cast<std::size_t>(count), 1.0f)
    );
  };
  add("model.embed_tokens.weight", {5, 4});
  add("model.norm.weight", {4});
  add("model.layers.0.input_layernorm.weight", {4});
  add("model.layers.0.post_attention_layernorm.weight", {4});
  for (const char* one : {"q", "k", "v", "o"})
    add(fmt::format("model.layers.0.self_attn.{}_proj.weight", one).c_str(), {4, 4});
  add("model.layers.0.mlp.gate_proj.weight", {6, 4});
  add("model.layers.0.mlp.up_proj.weight", {6, 4});
  add("model.layers.0.mlp.down_proj.weight", {4, 6});
  MemFileSystem files;
  writer.add_to(files, "d");
  files.add("d/config.json", bytes);
  const auto file = artery::model::open_model("d", files);
  if (!file) {
    CHECK(file.error().message.starts_with("d"));
    return;
  }
  check_rows(**file);
  const auto info = artery::model::check_model(**file);
  if (!info) CHECK(info.error().message.starts_with("d"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  as_file(bytes);
  as_config(bytes);
  return 0;
}
