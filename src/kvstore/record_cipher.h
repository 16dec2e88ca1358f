#pragma once
// The seam for encryption at rest: what the store thread calls on a record's body (token ids and
// payload) before it computes the checksums, and after it has verified them. The store thread only.

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"
#include "kvstore/record_format.h"

namespace artery::kvstore {

class RecordCipher {
 public:
  virtual ~RecordCipher() = default;
  // Encrypts record_body(header, record) in place and sets encrypted, nonce and tag of `header`, or
  // leaves both as they are for a space that is not encrypted. kIo: no key can be made or stored;
  // the record is not written then.
  virtual Result<> seal(SpaceId space, RecordHeader& header, std::span<std::byte> record) = 0;
  // Destroys the tenant's key: what was sealed with it cannot be opened any more. kIo: it may be
  // there still.
  virtual Result<> drop_tenant(const std::string& tenant) = 0;
  // Keys may have changed behind it: nothing that was made of them is kept.
  virtual void forget_keys() {}
  // Decrypts in place what seal() made. kNotFound: the tenant's key is gone; kBadFile: the tag does
  // not fit. Only called for encrypted records.
  virtual Result<> open(SpaceId space, const RecordHeader& header, std::span<std::byte> record) = 0;
};

}  // namespace artery::kvstore
