#include "cli/hf_tokenizer_loader.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file_system.h"
#include "base/log.h"
#include "cli/model_file.h"
#include "cli/vocab_loader.h"

namespace artery::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTokenizerMax = std::size_t{512} << 20;
constexpr std::size_t kConfigMax = std::size_t{64} << 20;  // Gemma's is 1 MB
constexpr std::size_t kTemplateMax = std::size_t{4} << 20;

bool is_file(const fs::path& path) {
  std::error_code why;
  return fs::is_regular_file(path, why);
}

// Empty optional: there is no such file.
Result<std::optional<std::string>> read_if_there(const fs::path& path, std::size_t bytes_max) {
  if (!is_file(path)) return std::optional<std::string>();
  return std::optional(TRY(as_bad_file(system_file_system().read(path.string(), bytes_max))));
}

// `result` with the file's path before its message.
template <typename T>
Result<T> in_file(const fs::path& path, Result<T> result) {
  if (result) return result;
  return fail(result.error().code, "{}: {}", path.string(), result.error().message);
}

class FolderReader {
 public:
  FolderReader(fs::path tokenizer, std::size_t vocab_size, std::vector<std::string>& warnings)
      : tokenizer_(std::move(tokenizer)),
        folder_(tokenizer_.parent_path()),
        vocab_size_(vocab_size),
        warnings_(warnings) {}

  Result<HfTokenizerFiles> read() {
    TRY(read_configs());
    TRY(read_template());
    config_.tokens.vocab_size = vocab_size_;
    config_.tokens.end_of_generation = files_.generation.eos_ids;
    config_.tokens.end_of_generation.insert(
        config_.tokens.end_of_generation.end(), model_eos_.begin(), model_eos_.end()
    );
    const std::string text =
        TRY(as_bad_file(system_file_system().read(tokenizer_.string(), kTokenizerMax)));
    std::vector<std::string> found;
    files_.tokenizer =
        TRY(in_file(tokenizer_, codec::make_hf_tokenizer(text, config_.tokens, &found)));
    for (const std::string& line : found) warnings_.push_back(tokenizer_.string() + ": " + line);
    return std::move(files_);
  }

 private:
  Result<> read_configs() {
    const fs::path config = folder_ / "tokenizer_config.json";
    if (const auto text = TRY(read_if_there(config, kConfigMax)))
      config_ = TRY(in_file(config, codec::read_tokenizer_config(*text)));
    const fs::path map = folder_ / "special_tokens_map.json";
    if (const auto text = TRY(read_if_there(map, kConfigMax)))
      TRY(in_file(map, codec::read_special_tokens_map(*text, config_.tokens)));
    const fs::path generation = folder_ / "generation_config.json";
    if (const auto text = TRY(read_if_there(generation, kConfigMax)))
      files_.generation = TRY(in_file(generation, codec::read_generation_config(*text)));
    // config.json names end tokens too, not always the same ones (FR-D6); its other keys are no
    // sampling.
    if (const auto text = TRY(read_if_there(folder_ / "config.json", kConfigMax))) {
      if (const auto more = codec::read_generation_config(*text)) model_eos_ = more->eos_ids;
    }
    return {};
  }

  Result<> read_template() {
    const fs::path jinja = folder_ / "chat_template.jinja";
    if (auto text = TRY(read_if_there(jinja, kTemplateMax))) {
      files_.chat_template = std::move(*text);
      files_.chat_template_place = jinja.string();
    }
    std::vector<codec::NamedTemplate>& all = config_.chat_templates;
    auto chosen = std::ranges::find(all, "default", &codec::NamedTemplate::name);
    if (chosen == all.end() && all.size() == 1) chosen = all.begin();
    if (chosen != all.end()) {
      if (files_.chat_template_place.empty()) {
        files_.chat_template = std::move(chosen->source);
        files_.chat_template_place = (folder_ / "tokenizer_config.json").string();
      }
      all.erase(chosen);
    }
    files_.more_templates = std::move(all);
    return {};
  }

  fs::path tokenizer_, folder_;
  std::size_t vocab_size_;
  std::vector<std::string>& warnings_;
  codec::HfConfigFile config_;
  std::vector<TokenId> model_eos_;  // of config.json
  HfTokenizerFiles files_;
};

fs::path tokenizer_path(const std::string& path) {
  std::error_code why;
  return fs::is_directory(path, why) ? fs::path(path) / "tokenizer.json" : fs::path(path);
}

}  // namespace

bool names_hf_tokenizer(const std::string& path) {
  const fs::path found = tokenizer_path(path);
  return found.extension() == ".json" && is_file(found);
}

Result<HfTokenizerFiles> load_hf_tokenizer(
    const std::string& path, std::size_t vocab_size, std::vector<std::string>* warnings
) {
  const fs::path found = tokenizer_path(path);
  if (!is_file(found)) {
    std::error_code why;
    const Code code = fs::is_directory(path, why) ? Code::kBadFile : Code::kNotFound;
    return fail(code, "{}: no such file; a model's folder needs one", found.string());
  }
  std::vector<std::string> own;
  auto files = FolderReader(found, vocab_size, warnings != nullptr ? *warnings : own).read();
  for (const std::string& line : own) log_warn("{}", line);
  return files;
}

Result<std::shared_ptr<const codec::Tokenizer>> load_any_tokenizer(const std::string& path) {
  if (names_hf_tokenizer(path)) {
    HfTokenizerFiles files = TRY(load_hf_tokenizer(path));
    return std::shared_ptr<const codec::Tokenizer>(std::move(files.tokenizer));
  }
  const std::unique_ptr<model::ModelFile> file = TRY(open_model_file(path));
  if (!file->folder().empty()) {  // to say which of its files is missing
    HfTokenizerFiles files = TRY(load_hf_tokenizer(file->folder()));
    return std::shared_ptr<const codec::Tokenizer>(std::move(files.tokenizer));
  }
  codec::VocabData vocab = TRY(load_vocab(*file));
  return std::shared_ptr<const codec::Tokenizer>(TRY(codec::Tokenizer::make(std::move(vocab))));
}

}  // namespace artery::cli
