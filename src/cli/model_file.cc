#include "cli/model_file.h"

#include <cstdlib>
#include <filesystem>

#include "base/file_system.h"
#include "codec/hf/hf_tokenizer.h"
#include "model/format/open.h"
#include "tensor/dtype.h"

namespace artery::cli {
namespace {

namespace files = std::filesystem;

constexpr std::size_t kTemplateBytesMax = std::size_t{4} << 20;
constexpr std::size_t kConfigBytesMax = std::size_t{64} << 20;

Result<> check_path(const std::string& path) {
  std::error_code why;
  const files::file_status status = files::status(path, why);
  if (!files::exists(status)) {
    return fail(
        Code::kNotFound,
        "{}: no such file; give the path of a .gguf file or of a model's folder",
        path
    );
  }
  // Opening a pipe waits for its writer, maybe for ever, and a pipe cannot be mapped.
  if (files::is_fifo(status) || files::is_socket(status))
    return fail(Code::kBadFile, "{}: a pipe or socket, not a file; give a .gguf file", path);
  return {};
}

}  // namespace

Result<std::unique_ptr<model::ModelFile>> open_model_file(const std::string& path) {
  TRY(check_path(path));
  return model::open_model(path);
}

Result<std::string> as_bad_file(Result<std::string> content) {
  if (content) return content;
  const Code code = content.error().code;
  if (code != Code::kTooLarge && code != Code::kInvalidArgument) return content;
  return fail(Code::kBadFile, "{}", content.error().message);
}

Result<std::string> folder_chat_template(const std::string& folder, std::string* place) {
  const FileSystem& fs = system_file_system();
  *place = folder + "/chat_template.jinja";
  Result<std::string> jinja = as_bad_file(fs.read(*place, kTemplateBytesMax));
  if (jinja || jinja.error().code != Code::kNotFound) return jinja;
  const std::string path = folder + "/tokenizer_config.json";
  *place = path;
  Result<std::string> text = as_bad_file(fs.read(path, kConfigBytesMax));
  if (!text && text.error().code == Code::kNotFound) return std::string();
  if (!text) return text;
  Result<codec::HfConfigFile> config = codec::read_tokenizer_config(*text);
  if (!config) return fail(config.error().code, "{}: {}", path, config.error().message);
  for (const codec::NamedTemplate& one : config->chat_templates)
    if (one.name == "default" || config->chat_templates.size() == 1) return one.source;
  return std::string();
}

std::string cache_folder() {
  // The XDG Base Directory Specification 0.8: a relative path is to be ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/artery";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/artery";
  return {};
}

std::string file_stem(const std::string& path) {
  files::path name(path);
  if (!name.has_filename()) name = name.parent_path();  // "folder/"
  std::error_code why;
  // A folder's name may hold a dot: Qwen3-0.6B.
  return (files::is_directory(name, why) ? name.filename() : name.stem()).string();
}

bool mostly_quantized(const model::ModelFile& file) {
  std::uint64_t quantized = 0, total = 0;
  for (const model::TensorInfo& tensor : file.tensors()) {
    total += tensor.bytes;
    if (tensor::traits(tensor.type).block_values > 1) quantized += tensor.bytes;
  }
  return quantized * 2 > total;
}

}  // namespace artery::cli
