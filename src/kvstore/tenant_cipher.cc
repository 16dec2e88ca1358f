#include "kvstore/tenant_cipher.h"

namespace artery::kvstore {
namespace {

constexpr std::size_t kCiphersMax = 64;  // about 1 KB each

}  // namespace

Aes256Gcm& TenantCipher::cipher(const TenantKeys::Key& key) {
  const auto at = ciphers_.find(key.id);
  if (at != ciphers_.end()) return *at->second;
  if (ciphers_.size() == kCiphersMax) ciphers_.clear();
  return *(ciphers_[key.id] = std::make_unique<Aes256Gcm>(key.bytes));
}

Result<> TenantCipher::seal(SpaceId space, RecordHeader& header, std::span<std::byte> record) {
  const TenantKeys::Key key = TRY(keys_->for_writing(spaces_->spec(space).tenant));
  header.encrypted = true;
  header.key_id = key.id;
  header.nonce = random_nonce(*random_);
  header.tag = cipher(key).seal(header.nonce, record_aad(header), record_body(header, record));
  return {};
}

Result<> TenantCipher::drop_tenant(const std::string& tenant) {
  ciphers_.clear();  // the key's schedule among them
  TRY(keys_->drop(tenant));
  return {};
}

Result<> TenantCipher::open(
    SpaceId space, const RecordHeader& header, std::span<std::byte> record
) {
  const auto key = keys_->find(spaces_->spec(space).tenant, header.key_id);
  if (!key) return fail(Code::kNotFound, "key {:016x} is gone", header.key_id);
  const std::int64_t bytes = record_bytes(header.ids, header.payload_bytes);
  if (static_cast<std::int64_t>(record.size()) != bytes)
    return fail(Code::kBadFile, "a record of {} bytes, expected {}", record.size(), bytes);
  const std::span<std::byte> body = record_body(header, record);
  if (cipher(*key).open(header.nonce, record_aad(header), body, header.tag)) return {};
  return fail(Code::kBadFile, "the tag of the encryption does not fit");
}

}  // namespace artery::kvstore
