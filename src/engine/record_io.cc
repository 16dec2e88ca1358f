#include "engine/record_io.h"

#include <cstring>

#include "base/check.h"

namespace artery::engine {

std::int64_t payload_page_bytes(const KvPool& pool) {
  std::int64_t sum = 0;
  for (const tensor::KvPages& kv : pool.kv()) sum += kv.geometry.page_bytes();
  return sum;
}

void gather_pages(
    const KvPool& pool, std::span<const PageRef> pages, std::span<std::byte> payload
) {
  CHECK(std::ssize(payload) == std::ssize(pages) * payload_page_bytes(pool));
  std::byte* out = payload.data();
  for (const PageRef& page : pages) {
    for (const tensor::KvPages& kv : pool.kv()) {
      const std::int64_t bytes = kv.geometry.page_bytes();
      if (bytes == 0) continue;
      std::memcpy(out, kv.base + page.page() * bytes, static_cast<std::size_t>(bytes));
      out += bytes;
    }
  }
}

void scatter_page(KvPool& pool, PageId page, std::span<const std::byte> payload) {
  CHECK(std::ssize(payload) == payload_page_bytes(pool));
  const std::byte* in = payload.data();
  for (const tensor::KvPages& kv : pool.kv()) {
    const std::int64_t bytes = kv.geometry.page_bytes();
    if (bytes == 0) continue;
    std::memcpy(kv.base + page * bytes, in, static_cast<std::size_t>(bytes));
    in += bytes;
  }
}

}  // namespace artery::engine
