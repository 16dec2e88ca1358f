#include "cli/key_file.h"

#include <sys/stat.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/file_system.h"
#include "base/log.h"
#include "cli/options.h"

namespace artery::cli {
namespace {

constexpr std::size_t kKeyFileBytesMax = 8u << 20;
constexpr std::size_t kNameBytesMax = 64;
constexpr std::size_t kKeyBytesMin = 8, kKeyBytesMax = 1024;

// One [[key]] table. Errors never show the key.
class Entry {
 public:
  Entry(const std::string& path, const toml::table& table, std::size_t number)
      : where_(fmt::format("--api-keys {}: key {}", path, number)), table_(&table) {}

  Result<server::ApiKey> read() const {
    TRY(check_names());
    server::ApiKey out;
    out.name = TRY(text("name"));
    if (!is_label(out.name)) {
      return fail(
          Code::kBadFile,
          "{}: name must be 1 to {} letters, digits, or one of . _ - @",
          where_,
          kNameBytesMax
      );
    }
    out.tenant = TRY(text("tenant"));
    if (out.tenant.empty()) out.tenant = out.name;
    out.digest = TRY(digest());
    out.max_concurrent = static_cast<int>(TRY(integer("max_concurrent", 0, 1'000'000)));
    out.requests_per_minute = static_cast<int>(TRY(integer("requests_per_minute", 0, 100'000'000)));
    out.tokens_per_minute = TRY(integer("tokens_per_minute", 0, 1'000'000'000'000));
    out.kv_quota_bytes = TRY(size("kv_quota"));
    constexpr int kMost = 1'000'000;
    out.priority = static_cast<int>(TRY(integer("priority", -kMost, kMost)));
    const toml::node* admin = table_->get("admin");
    if (admin != nullptr && !admin->is_boolean()) {
      return fail(Code::kBadFile, "{}: admin must be true or false", where_);
    }
    out.admin = admin != nullptr && admin->as_boolean()->get();
    return out;
  }

 private:
  static bool is_label(std::string_view name) {
    return !name.empty() && name.size() <= kNameBytesMax &&
           std::all_of(name.begin(), name.end(), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    std::string_view("._-@").find(c) != std::string_view::npos;
           });
  }

  Result<> check_names() const {
    static constexpr std::string_view kFields =
        " key key_sha256 name tenant max_concurrent requests_per_minute tokens_per_minute priority "
        "kv_quota admin ";
    for (const auto& [name, node] : *table_) {
      if (kFields.find(" " + std::string(name.str()) + " ") == std::string_view::npos) {
        return fail(
            Code::kBadFile, "{}: unknown field {}; there are:{}", where_, name.str(), kFields
        );
      }
    }
    return {};
  }

  Result<std::string> text(std::string_view name) const {
    const toml::node* node = table_->get(name);
    if (node == nullptr) return std::string();
    if (!node->is_string()) return fail(Code::kBadFile, "{}: {} must be a string", where_, name);
    return node->as_string()->get();
  }

  Result<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max) const {
    const toml::node* node = table_->get(name);
    if (node == nullptr) return std::int64_t{0};
    const auto value = node->is_integer() ? node->as_integer()->get() : max + 1;
    if (value < min || value > max) {
      return fail(
          Code::kBadFile, "{}: {} must be a whole number from {} to {}", where_, name, min, max
      );
    }
    return value;
  }

  // A whole number of bytes, or a text such as "20G".
  Result<std::int64_t> size(std::string_view name) const {
    const toml::node* node = table_->get(name);
    std::optional<std::int64_t> bytes;
    if (node == nullptr) return std::int64_t{0};
    if (node->is_integer()) bytes = node->as_integer()->get();
    if (node->is_string()) bytes = parse_bytes(node->as_string()->get());
    if (bytes && *bytes > 0) return *bytes;
    return fail(
        Code::kBadFile, "{}: {} must be a size above 0, such as \"20G\" or 512000000", where_, name
    );
  }

  Result<Digest> digest() const {
    const std::string key = TRY(text("key"));
    const std::string hashed = TRY(text("key_sha256"));
    if (key.empty() == hashed.empty()) {
      return fail(Code::kBadFile, "{}: give either key or key_sha256", where_);
    }
    if (!hashed.empty()) return digest_of(hashed);
    const bool plain =
        std::all_of(key.begin(), key.end(), [](char c) { return c > 32 && c < 127; });
    if (!plain || key.size() < kKeyBytesMin || key.size() > kKeyBytesMax) {
      return fail(
          Code::kBadFile,
          "{}: key must be {} to {} printable ASCII characters without spaces",
          where_,
          kKeyBytesMin,
          kKeyBytesMax
      );
    }
    return server::key_digest(key);
  }

  Result<Digest> digest_of(const std::string& digits) const {
    Digest out{};
    if (!parse_hex(digits, out))
      return fail(Code::kBadFile, "{}: key_sha256 must be 64 hex digits", where_);
    return out;
  }

  const std::string where_;
  const toml::table* table_;
};

Result<toml::table> parse_toml(const std::string& source, const std::string& path) {
  try {
    return toml::parse(source, path);
  } catch (const toml::parse_error& error) {
    // Without the library's text: it may quote a part of a key.
    return fail(
        Code::kBadFile, "--api-keys {}: not TOML at line {}", path, error.source().begin.line
    );
  }
}

// A quota is the tenant's: two keys of one tenant may not tell two.
Result<> check_quotas(const std::string& path, const std::vector<server::ApiKey>& keys) {
  std::map<std::string_view, const server::ApiKey*> first;
  for (const server::ApiKey& key : keys) {
    if (key.kv_quota_bytes == 0) continue;
    const server::ApiKey& other = *first.try_emplace(key.tenant, &key).first->second;
    if (other.kv_quota_bytes == key.kv_quota_bytes) continue;
    return fail(
        Code::kBadFile,
        "--api-keys {}: {} and {} give their tenant {} two values of kv_quota, {} and {} bytes; it "
        "holds for the tenant, so give one",
        path,
        other.name,
        key.name,
        key.tenant,
        other.kv_quota_bytes,
        key.kv_quota_bytes
    );
  }
  return {};
}

}  // namespace

void warn_of_readers(std::string_view flag, const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    log_warn("{} {}: others on this machine can read it; chmod 600 {}", flag, path, path);
  }
}

Result<std::vector<server::ApiKey>> read_key_file(const std::string& path) {
  const auto source = system_file_system().read(path, kKeyFileBytesMax);
  if (!source) return fail(Code::kBadFile, "--api-keys {}", source.error().message);
  const toml::table table = TRY(parse_toml(*source, path));
  const toml::array* entries = table.contains("key") ? table.get("key")->as_array() : nullptr;
  if (table.size() != 1 || entries == nullptr || entries->empty()) {
    return fail(
        Code::kBadFile,
        "--api-keys {}: expected [[key]] tables with name and key, and nothing else",
        path
    );
  }
  if (entries->size() > static_cast<std::size_t>(server::kApiKeysMax)) {
    return fail(Code::kBadFile, "--api-keys {}: more than {} keys", path, server::kApiKeysMax);
  }
  std::vector<server::ApiKey> keys;
  std::set<std::string> names;
  std::set<Digest> digests;
  for (const toml::node& node : *entries) {
    if (!node.is_table()) return fail(Code::kBadFile, "--api-keys {}: key is no table", path);
    server::ApiKey key = TRY(Entry(path, *node.as_table(), keys.size() + 1).read());
    const bool is_reserved = key.name == "default" || key.name == "_other";
    if (is_reserved || !names.insert(key.name).second) {
      return fail(
          Code::kBadFile,
          "--api-keys {}: the name {} is taken ({})",
          path,
          key.name,
          key.name == "default" ? "it stands for --api-key"
          : is_reserved         ? "metrics count keys beyond the 200th under it"
                                : "names are unique"
      );
    }
    if (!digests.insert(key.digest).second) {
      return fail(Code::kBadFile, "--api-keys {}: {} has the key of another entry", path, key.name);
    }
    keys.push_back(std::move(key));
  }
  TRY(check_quotas(path, keys));
  warn_of_readers("--api-keys", path);
  return keys;
}

}  // namespace artery::cli
