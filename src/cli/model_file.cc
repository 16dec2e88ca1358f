#include "cli/model_file.h"

#include <cstdlib>
#include <filesystem>

#include "model/format/gguf.h"
#include "tensor/dtype.h"

namespace artery::cli {
namespace {

namespace files = std::filesystem;

Result<> check_path(const std::string& path) {
  std::error_code why;
  const files::file_status status = files::status(path, why);
  if (!files::exists(status))
    return fail(Code::kNotFound, "{}: no such file; give the path of a .gguf file", path);
  // Opening a pipe waits for its writer, maybe for ever, and a pipe cannot be mapped.
  if (files::is_fifo(status) || files::is_socket(status))
    return fail(Code::kBadFile, "{}: a pipe or socket, not a file; give a .gguf file", path);
  if (!files::is_directory(status)) return {};
  if (files::exists(files::path(path) / "config.json", why))
    return fail(
        Code::kUnsupported,
        "{}: a folder with config.json; safetensors folders come later, give a .gguf file",
        path
    );
  return fail(Code::kBadFile, "{}: a folder without config.json; give a .gguf file", path);
}

}  // namespace

Result<std::unique_ptr<model::ModelFile>> open_model_file(const std::string& path) {
  TRY(check_path(path));
  std::unique_ptr<model::ModelFile> file = TRY(model::GgufFile::open(path));
  if (file->find_key("split.count") != nullptr) {
    const std::uint64_t count = TRY(file->get_unsigned("split.count"));
    if (count > 1)
      return fail(
          Code::kUnsupported,
          "{}: one part of a model split into {} files; split files come later, join them with "
          "`gguf-split --merge` first",
          path,
          count
      );
  }
  return file;
}

std::string cache_folder() {
  // The XDG Base Directory Specification 0.8: a relative path is to be ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/artery";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/artery";
  return {};
}

std::string file_stem(const std::string& path) { return files::path(path).stem().string(); }

bool mostly_quantized(const model::ModelFile& file) {
  std::uint64_t quantized = 0, total = 0;
  for (const model::TensorInfo& tensor : file.tensors()) {
    total += tensor.bytes;
    if (tensor::traits(tensor.type).block_values > 1) quantized += tensor.bytes;
  }
  return quantized * 2 > total;
}

}  // namespace artery::cli
