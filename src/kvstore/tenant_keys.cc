#include "kvstore/tenant_keys.h"

#include <algorithm>
#include <cstring>

#include "base/chain_key.h"
#include "base/hash.h"
#include "base/log.h"
#include "kvstore/flat_json.h"

namespace artery::kvstore {
namespace {

constexpr std::size_t kFileBytesMax = 256u << 20;
constexpr std::string_view kFormat = "artery-keys-1";
constexpr std::string_view kMasterCheck = "artery-master-key-1\n";
constexpr std::size_t kBlockBytes = 4096;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <std::size_t N>
void fill(std::array<std::uint8_t, N>& out, Random& random) {
  for (std::size_t at = 0; at < N; at += 8) {
    const std::uint64_t bits = random.next();
    std::memcpy(out.data() + at, &bits, std::min<std::size_t>(8, N - at));
  }
}

std::string id_text(std::uint64_t id) { return fmt::format("{:016x}", id); }

std::string associated(const std::string& tenant, std::string_view id) {
  return fmt::format("artery-tenant-key-1\n{}\n{}", id, tenant);
}

template <typename T>
bool read_hex(const FlatJson& object, std::string_view name, T& out) {
  const std::string* digits = object.text(name);
  return digits != nullptr && parse_hex(*digits, out);
}

bool opens_check(Aes256Gcm& cipher, const FlatJson& object) {
  AeadNonce nonce{};
  AeadTag tag{};
  const std::string* format = object.text("format");
  return format != nullptr && *format == kFormat && read_hex(object, "nonce", nonce) &&
         read_hex(object, "tag", tag) && cipher.open(nonce, bytes_of(kMasterCheck), {}, tag);
}

// A tenant's line as it stands in the file.
struct SealedKey {
  std::string tenant;
  AeadNonce nonce{};
  AeadTag tag{};
  TenantKeys::Key key;  // its bytes are sealed
};

std::optional<SealedKey> read_line(const FlatJson& object) {
  SealedKey out;
  std::array<std::uint8_t, 8> id{};
  const std::string* tenant = object.text("tenant");
  if (tenant == nullptr || !read_hex(object, "key_id", id) ||
      !read_hex(object, "nonce", out.nonce) || !read_hex(object, "tag", out.tag) ||
      !read_hex(object, "key", out.key.bytes))
    return std::nullopt;
  out.tenant = *tenant;
  for (const std::uint8_t byte : id) out.key.id = out.key.id << 8 | byte;
  return out.key.id == 0 ? std::nullopt : std::optional(std::move(out));
}

std::optional<std::pair<std::string, TenantKeys::Key>> open_line(
    Aes256Gcm& cipher, const FlatJson& object
) {
  std::optional<SealedKey> line = read_line(object);
  if (!line) return std::nullopt;
  const std::string covered = associated(line->tenant, id_text(line->key.id));
  const auto sealed = std::as_writable_bytes(std::span(line->key.bytes));
  if (!cipher.open(line->nonce, bytes_of(covered), sealed, line->tag)) return std::nullopt;
  return std::pair(line->tenant, line->key);
}

std::string damage_text(const std::string& path, int number, const std::string* tenant) {
  if (number == 1 && tenant == nullptr) {
    return fmt::format(
        "{}: line 1 is damaged: it only checks that the key file is the right one; no tenant's key "
        "is lost with it",
        path
    );
  }
  const std::string whose =
      tenant != nullptr ? fmt::format("the key of tenant '{}'", *tenant) : "the key of a tenant";
  return fmt::format(
      "{}: line {} is damaged: {} is lost, and what was encrypted with it is a miss until it "
      "expires; to have it again, stop the server and put keys.json back from a backup",
      path,
      number,
      whose
  );
}

// The lines that are not of this tenant.
std::string without_tenant(std::string_view rest, const std::string& tenant) {
  std::string kept;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::optional<FlatJson> object = FlatJson::parse(line);
    const std::string* of = object ? object->text("tenant") : nullptr;
    if (of == nullptr || *of != tenant) kept.append(line).append("\n");
  }
  return kept;
}

// Zeros over what a handle of a file that has been replaced still holds.
Result<> overwrite(BlockFile& file) {
  struct alignas(kBlockBytes) Block {
    std::array<std::byte, kBlockBytes> bytes{};
  };
  const Block zeros;
  const std::int64_t size = TRY(file.size());
  for (std::int64_t at = 0; at < size; at += static_cast<std::int64_t>(kBlockBytes)) {
    if (file.write_at(at, zeros.bytes) != static_cast<std::int64_t>(kBlockBytes))
      return fail(Code::kIo, "cannot be overwritten");
  }
  return file.sync();
}

}  // namespace

Result<bool> erase_tenant_key(
    const std::string& folder, const std::string& tenant, FileSystem& files
) {
  const std::string path = folder + "/keys.json";
  const Result<std::string> text = files.read(path, kFileBytesMax);
  if (!text && text.error().code == Code::kNotFound) return false;
  if (!text) return tl::unexpected<Error>(text.error());
  const std::string kept = without_tenant(*text, tenant);
  if (kept.size() >= text->size()) return false;
  const auto old = files.open_blocks(path, OpenMode::kWrite);
  TRY(files.replace(path, kept));
  TRY(files.sync_folder(folder));
  // The old file has no name any more, but its blocks stay until the disk uses them again.
  const Result<> gone = old ? overwrite(**old) : Result<>(tl::unexpected<Error>(old.error()));
  if (!gone) log_warn("{}: the old copy: {}", path, gone.error().message);
  return true;
}

Result<bool> has_keys_file(const std::string& folder, FileSystem& files) {
  const auto file = files.open_blocks(folder + "/keys.json", OpenMode::kRead);
  if (file) return true;
  if (file.error().code == Code::kNotFound) return false;
  return tl::unexpected<Error>(file.error());
}

std::vector<std::string> tenants_with_keys(const std::string& folder, const FileSystem& files) {
  std::vector<std::string> tenants;
  const std::string text = files.read(folder + "/keys.json", kFileBytesMax).value_or("");
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::optional<FlatJson> object = FlatJson::parse(line);
    const std::string* tenant = object ? object->text("tenant") : nullptr;
    if (tenant != nullptr) tenants.push_back(*tenant);
  }
  return tenants;
}

std::vector<std::string> keys_file_troubles(const std::string& folder, const FileSystem& files) {
  const std::string path = folder + "/keys.json";
  const Result<std::string> text = files.read(path, kFileBytesMax);
  if (!text && text.error().code == Code::kNotFound) return {};
  if (!text) return {text.error().message};
  std::vector<std::string> troubles;
  std::string_view rest = *text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    const std::optional<FlatJson> object = FlatJson::parse(line);
    const std::string* format = object ? object->text("format") : nullptr;
    if (format != nullptr && *format == kFormat) continue;
    if (object && read_line(*object)) continue;
    const std::string* tenant = object ? object->text("tenant") : nullptr;
    troubles.push_back(damage_text(path, number, tenant));
  }
  return troubles;
}

AeadNonce random_nonce(Random& random) {
  AeadNonce nonce{};
  fill(nonce, random);
  return nonce;
}

Result<AeadKey> read_master_key(const std::string& path, const FileSystem& files) {
  std::string text = TRY(files.read(path, 4096));
  AeadKey key{};
  if (text.size() == key.size()) {
    std::memcpy(key.data(), text.data(), key.size());
  } else {
    const std::string_view digits =
        std::string_view(text).substr(0, text.find_last_not_of("\r\n") + 1);
    if (!parse_hex(digits, key))
      return fail(
          Code::kBadFile,
          "{}: expected 32 bytes or 64 hexadecimal digits, found {} bytes; make a key with: "
          "(umask 077; head -c 32 /dev/urandom > {})",
          path,
          text.size(),
          path
      );
  }
  wipe({reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return key;
}

Result<std::unique_ptr<TenantKeys>> TenantKeys::open(
    const std::string& folder,
    const AeadKey& master,
    FileSystem& files,
    Random& random,
    bool read_only
) {
  std::unique_ptr<TenantKeys> keys(new TenantKeys(folder, master, files, random));
  keys->read_only_ = read_only;
  const Result<std::string> text = files.read(keys->path_, kFileBytesMax);
  if (text) {
    TRY(keys->read(*text));
  } else if (text.error().code != Code::kNotFound) {
    return tl::unexpected<Error>(text.error());
  } else if (!read_only) {
    MutexLock lock(keys->mutex_);
    TRY(keys->save_locked());
  }
  return keys;
}

TenantKeys::~TenantKeys() {
  wipe(master_);
  MutexLock lock(mutex_);
  for (auto& [tenant, key] : keys_) wipe(key.bytes);
}

TenantKeys::File TenantKeys::parse(std::string_view text) const {
  Aes256Gcm cipher(master_);
  File out;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    const std::optional<FlatJson> object = FlatJson::parse(line);
    const std::string* tenant = object ? object->text("tenant") : nullptr;
    out.is_keys_file |= object && (tenant != nullptr || object->text("format") != nullptr);
    if (object && opens_check(cipher, *object)) {
      out.has_check = true;
    } else if (auto key = object ? open_line(cipher, *object) : std::nullopt) {
      out.keys.insert_or_assign(key->first, key->second);
    } else {
      if (number > 1) out.damaged.append(line).append("\n");
      out.troubles.push_back(damage_text(path_, number, tenant));
    }
  }
  return out;
}

Result<> TenantKeys::read(std::string_view text) {
  MutexLock lock(mutex_);
  File file = parse(text);
  if (file.has_check || !file.keys.empty()) {
    keys_ = std::move(file.keys);
    damaged_ = std::move(file.damaged);
    troubles_ = std::move(file.troubles);
    return {};
  }
  if (!file.is_keys_file) {
    return fail(
        Code::kBadFile,
        "{}: damaged: none of its lines can be read; the tenants' keys are in it, and without them "
        "nothing that was encrypted here can be read again: put it back from a backup, or begin "
        "with a new folder",
        path_
    );
  }
  return fail(
      Code::kBadFile,
      "{}: the encryption key is not the one this store was made with; give the right key file, or "
      "use a new folder for a new key",
      path_
  );
}

std::set<std::string> TenantKeys::reload() {
  const Result<std::string> text = files_->read(path_, kFileBytesMax);
  if (!text && text.error().code != Code::kNotFound) return {};
  MutexLock lock(mutex_);
  File file = parse(text ? std::string_view(*text) : std::string_view());
  std::set<std::string> gone;
  for (auto& [tenant, key] : keys_) {
    const auto now = file.keys.find(tenant);
    if (now == file.keys.end() || now->second.id != key.id) gone.insert(tenant);
    wipe(key.bytes);
  }
  keys_ = std::move(file.keys);
  return gone;
}

Result<TenantKeys::Key> TenantKeys::for_writing(const std::string& tenant) {
  MutexLock lock(mutex_);
  const auto at = keys_.find(tenant);
  if (at != keys_.end()) return at->second;
  if (read_only_) return fail(Code::kUnavailable, "{}: opened read-only", path_);
  Key key;
  while (key.id == 0) key.id = random_->next();
  fill(key.bytes, *random_);
  keys_[tenant] = key;
  const Result<> saved = save_locked();
  if (saved) return key;
  keys_.erase(tenant);  // a record sealed with it could not be read after a restart
  return tl::unexpected<Error>(saved.error());
}

std::optional<TenantKeys::Key> TenantKeys::find(const std::string& tenant, std::uint64_t id) const {
  MutexLock lock(mutex_);
  const auto at = keys_.find(tenant);
  if (at == keys_.end() || at->second.id != id) return std::nullopt;
  return at->second;
}

bool TenantKeys::has(const std::string& tenant) const {
  MutexLock lock(mutex_);
  return keys_.contains(tenant);
}

Result<bool> TenantKeys::drop(const std::string& tenant) {
  MutexLock lock(mutex_);
  if (read_only_) return fail(Code::kUnavailable, "{}: opened read-only", path_);
  const bool was_in_file = TRY(erase_tenant_key(folder_, tenant, *files_));
  damaged_ = without_tenant(damaged_, tenant);
  const auto at = keys_.find(tenant);
  if (at == keys_.end()) return was_in_file;
  wipe(at->second.bytes);
  keys_.erase(at);
  return true;
}

std::string TenantKeys::line_locked(const std::string& tenant, const Key& key) {
  AeadKey sealed = key.bytes;
  const AeadNonce nonce = random_nonce(*random_);
  const std::string covered = associated(tenant, id_text(key.id));
  const AeadTag tag =
      Aes256Gcm(master_).seal(nonce, bytes_of(covered), std::as_writable_bytes(std::span(sealed)));
  FlatJson object;
  object.add("tenant", tenant)
      .add("key_id", id_text(key.id))
      .add("nonce", hex(nonce))
      .add("key", hex(sealed))
      .add("tag", hex(tag));
  return object.line() + "\n";
}

Result<> TenantKeys::save_locked() {
  const AeadNonce nonce = random_nonce(*random_);
  const AeadTag tag = Aes256Gcm(master_).seal(nonce, bytes_of(kMasterCheck), {});
  FlatJson head;
  head.add("format", std::string(kFormat)).add("nonce", hex(nonce)).add("tag", hex(tag));
  std::string text = head.line() + "\n";
  for (const auto& [tenant, key] : keys_) text += line_locked(tenant, key);
  text += damaged_;  // who knows what a backup or a look at it may still give
  TRY(files_->replace(path_, text));
  return files_->sync_folder(path_.substr(0, path_.rfind('/')));
}

std::string TenantKeys::chain_secret(std::string_view secret) const {
  const std::string_view master(reinterpret_cast<const char*>(master_.data()), master_.size());
  const ChainKey key = chain_root(master, fmt::format("artery-chain-root-1\n{}", secret));
  return {key.begin(), key.end()};
}

}  // namespace artery::kvstore
