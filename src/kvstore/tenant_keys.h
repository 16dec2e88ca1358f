#pragma once
// The keys of encryption at rest: a random one for each tenant, kept in `keys.json` of the store's
// folder wrapped (AES-256-GCM) by the master key, which stays in a file of its own elsewhere.
// Dropping a tenant takes its key out of the file, and with it every record ever sealed with it,
// wherever copies of the segments are; a tenant that returns gets a new key under a new id.
//
// keys.json is one JSON object a line. The first tells a wrong master key from a damaged line:
//   {"format":"artery-keys-1","nonce":NONCE,"tag":TAG}
//   {"tenant":NAME,"key_id":ID,"nonce":NONCE,"key":SEALED,"tag":TAG}
// all in hexadecimal digits. The first line's tag is over no text, associated data
// "artery-master-key-1\n"; the others' associated data is "artery-tenant-key-1\n" ID "\n" NAME.
//
// Locks itself. open(), for_writing() and drop() do small I/O. Never logs or shows a key.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/aead.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/random.h"

namespace artery::kvstore {

// 32 bytes as they are, or 64 hexadecimal digits and a line's end. kBadFile: neither; kNotFound,
// kIo. The message says how to make one.
Result<AeadKey> read_master_key(const std::string& path, const FileSystem& files);

// Takes a tenant's line out of a folder's keys.json and overwrites the old file's blocks; needs no
// master key. Other lines stay as they are. False: there is no such line, or no file. kIo.
Result<bool> erase_tenant_key(
    const std::string& folder, const std::string& tenant, FileSystem& files
);

// Whether keys.json is there; errors other than that it is not are passed on.
Result<bool> has_keys_file(const std::string& folder, FileSystem& files);

// Names of the tenants that have a key, from lines that are whole; needs no master key.
std::vector<std::string> tenants_with_keys(const std::string& folder, const FileSystem& files);

// What is wrong with keys.json as far as its form tells without the master key: sentences. Nothing
// where there is no such file.
std::vector<std::string> keys_file_troubles(const std::string& folder, const FileSystem& files);

class TenantKeys {
 public:
  struct Key {
    std::uint64_t id = 0;  // never 0
    AeadKey bytes{};
  };

  // Makes the file where there is none (not when read_only). kBadFile: not the master key that the
  // file was made with, or no line of it can be read; nothing has been changed then. A damaged line
  // loses its tenant's key (troubles() says so) and is kept as it is.
  static Result<std::unique_ptr<TenantKeys>> open(
      const std::string& folder,
      const AeadKey& master,
      FileSystem& files,
      Random& random,
      bool read_only = false
  );
  ~TenantKeys();
  TenantKeys(const TenantKeys&) = delete;
  TenantKeys& operator=(const TenantKeys&) = delete;

  // For new records; made, and on the disk, at the first use. kIo; kUnavailable: read-only.
  Result<Key> for_writing(const std::string& tenant);
  // nullopt: another id, because the tenant was dropped since, or its line was damaged.
  std::optional<Key> find(const std::string& tenant, std::uint64_t id) const;
  bool has(const std::string& tenant) const;
  // False: it had none. Its line is off the disk and the old file's blocks overwritten.
  Result<bool> drop(const std::string& tenant);

  // What its writer has dropped since leaves this object as well, what it has added comes: the
  // tenants whose keys are gone. Does nothing where the file cannot be read.
  std::set<std::string> reload();

  // As the file was opened: lines, and sentences that say what is lost and what to do.
  int damaged_lines() const { return static_cast<int>(troubles_.size()); }
  const std::vector<std::string>& troubles() const { return troubles_; }

  // For a folder's secret: HMAC-SHA-256(master key, "artery-chain-root-1\n" || secret). Chain keys
  // made with the bare secret, which lies beside the records, would let a thief of the disk test
  // guesses of a prompt.
  std::string chain_secret(std::string_view secret) const;

 private:
  TenantKeys(const std::string& folder, const AeadKey& master, FileSystem& files, Random& random)
      : folder_(folder),
        path_(folder + "/keys.json"),
        files_(&files),
        random_(&random),
        master_(master) {}
  struct File {
    std::map<std::string, Key> keys;
    bool has_check = false;     // the first line is sound
    bool is_keys_file = false;  // some line has the shape of one
    std::string damaged;        // lines that may be a tenant's
    std::vector<std::string> troubles;
  };
  File parse(std::string_view text) const;
  Result<> read(std::string_view text);
  Result<> save_locked() REQUIRES(mutex_);
  std::string line_locked(const std::string& tenant, const Key& key) REQUIRES(mutex_);

  const std::string folder_, path_;
  FileSystem* const files_;
  Random* const random_;
  AeadKey master_;
  bool read_only_ = false;
  std::vector<std::string> troubles_;
  mutable Mutex mutex_;
  std::map<std::string, Key> keys_ GUARDED_BY(mutex_);
  std::string damaged_ GUARDED_BY(mutex_);  // lines, as they are in the file
};

// 12 random bytes: no more than 2^32 messages of a key (NIST SP 800-38D, 8.3).
AeadNonce random_nonce(Random& random);

}  // namespace artery::kvstore
