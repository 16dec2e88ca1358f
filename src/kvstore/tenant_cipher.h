#pragma once
// Encryption at rest of records: AES-256-GCM with the key of the space's tenant (tenant_keys.h) and
// a random nonce a record. The tag covers what names the record (record_aad()), so that no record
// can be put in another's place. The store thread only.

#include <cstdint>
#include <map>
#include <memory>

#include "base/random.h"
#include "kvstore/record_cipher.h"
#include "kvstore/spaces.h"
#include "kvstore/tenant_keys.h"

namespace artery::kvstore {

class TenantCipher final : public RecordCipher {
 public:
  // All outlive it.
  TenantCipher(TenantKeys& keys, const Spaces& spaces, Random& random)
      : keys_(&keys), spaces_(&spaces), random_(&random) {}

  Result<> seal(SpaceId space, RecordHeader& header, std::span<std::byte> record) override;
  Result<> open(SpaceId space, const RecordHeader& header, std::span<std::byte> record) override;
  Result<> drop_tenant(const std::string& tenant) override;
  void forget_keys() override { ciphers_.clear(); }

 private:
  Aes256Gcm& cipher(const TenantKeys::Key& key);

  TenantKeys* const keys_;
  const Spaces* const spaces_;
  Random* const random_;
  std::map<std::uint64_t, std::unique_ptr<Aes256Gcm>> ciphers_;  // by key id, a few
};

}  // namespace artery::kvstore
