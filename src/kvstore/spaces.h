#pragma once
// The namespaces of a store: which digest in a record's header stands for which weights, layout,
// numerics and tenant. Kept in `spaces.json` of the store's folder, one JSON object a line, padded
// with line ends to whole blocks and only appended to, so that a new space costs one block and a
// torn write no old line. A line that is damaged loses its space (its records are kVersion misses),
// nothing else.
//
// Locks itself: any thread may ask and add; save() and drop_tenant() are the store thread's.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "kvstore/record_store.h"

namespace artery::kvstore {

class Spaces {
 public:
  // Reads the file; fine when there is none. kIo: it is there and cannot be read.
  static Result<std::unique_ptr<Spaces>> open(const std::string& folder, FileSystem& files);

  // The same identity and tenant give the same id: 0, 1, ... No file is touched.
  SpaceId add(const SpaceSpec& spec);
  std::optional<SpaceId> find(const Digest& digest) const;
  // Ids are 0 to count() - 1 and stay for the life of the object, those of dropped tenants too.
  int count() const;
  SpaceSpec spec(SpaceId space) const;
  Digest digest(SpaceId space) const;
  int damaged_lines() const { return damaged_lines_; }  // as the file was opened

  // Before the first record of a space reaches the disk: its line is in the file and synced. Cheap
  // when it is there. kIo and what the file system says.
  Result<> save(SpaceId space);
  // Its lines leave the file; the next save() of such a space writes it anew.
  Result<> drop_tenant(std::string_view tenant);

 private:
  struct Item {
    SpaceSpec spec;
    Digest digest{};
    bool saved = false;
  };
  Spaces(std::string path, FileSystem& files) : path_(std::move(path)), files_(&files) {}
  void read(std::string_view text);
  SpaceId add_locked(const SpaceSpec& spec, bool saved) REQUIRES(mutex_);
  Result<> append(std::string_view line);
  Result<> rewrite();  // with what is marked as saved

  const std::string path_;
  FileSystem* const files_;
  int damaged_lines_ = 0;
  mutable Mutex mutex_;
  std::vector<Item> items_ GUARDED_BY(mutex_);
  std::map<Digest, SpaceId> ids_ GUARDED_BY(mutex_);
  // Of the file; the store thread's.
  std::unique_ptr<BlockFile> file_;
  bool exists_ = false;
  bool must_rewrite_ = false;    // not in whole blocks: somebody has edited it
  std::int64_t full_bytes_ = 0;  // of its blocks that are full
  std::string tail_;             // lines in the block after them
};

// The lines of a file, those that hold a sound space; `damaged` counts the others.
std::vector<SpaceSpec> parse_spaces(std::string_view text, int& damaged);
// Without a line's end: digest (record_format.h), what SpaceSpec has, and `sum`, the first 16
// hexadecimal digits of SHA-256 over the line as it is without it.
std::string space_line(const SpaceSpec& spec);

}  // namespace artery::kvstore
