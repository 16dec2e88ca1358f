#pragma once
// What a tenant may have and has: its bytes, its quota, the promises made to it. The catalog's own,
// under its owner's lock.

#include <cstdint>
#include <map>
#include <string>

namespace artery::kvstore {

struct Tenant {
  std::string name;
  std::int64_t quota = 0;  // bytes; 0: none
  std::int64_t bytes = 0;  // of its records, those being written too
  std::int64_t records = 0;
  std::int64_t dropped = 0;  // times that drop_tenant() hit it
  // Bytes promised until the end of a minute.
  std::map<std::int64_t, std::int64_t> promises;
  std::int64_t promised = 0;
  bool is_ordered = false;  // had a quota once: its leaves are in the LeafOrder

  // What is not promised any more at `now_s` is taken off; returns those bytes.
  std::int64_t settle(std::int64_t now_s) {
    std::int64_t freed = 0;
    while (!promises.empty() && promises.begin()->first * 60 + 60 <= now_s) {
      freed += promises.begin()->second;
      promises.erase(promises.begin());
    }
    promised -= freed;
    return freed;
  }
  void promise(std::int64_t bytes_more, std::int64_t until_s) {
    promises[until_s / 60] += bytes_more;
    promised += bytes_more;
  }
};

}  // namespace artery::kvstore
