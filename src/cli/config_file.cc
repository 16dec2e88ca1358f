#include "cli/config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "base/file_system.h"

namespace artery::cli {
namespace {

constexpr std::size_t kConfigBytesMax = 1 << 20;

std::optional<std::string> plain_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
  const toml::array* items = node.as_array();
  if (items == nullptr) return std::nullopt;
  std::string joined;
  for (const toml::node& item : *items) {
    if (item.is_array()) return std::nullopt;
    const std::optional<std::string> text = plain_text(item);
    if (!text) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + *text;
  }
  return joined;
}

}  // namespace

Result<std::map<std::string, std::string>> read_config_file(const std::string& path) {
  const std::string source = TRY(system_file_system().read(path, kConfigBytesMax));
  toml::table table;
  try {
    table = toml::parse(source, path);
  } catch (const toml::parse_error& error) {
    return fail_field(
        "--config", "{}: line {}: {}", path, error.source().begin.line, error.description()
    );
  }
  std::map<std::string, std::string> out;
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::replace(name.begin(), name.end(), '_', '-');
    const std::optional<std::string> text = plain_text(node);
    if (!text)
      return fail_field("--config", "{}: {} is a table or nested; keys are flat", path, key.str());
    out[name] = *text;
  }
  return out;
}

}  // namespace artery::cli
