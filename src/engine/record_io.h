#pragma once
// Between the pages of a pool and the payload of a stored record: page after page, in each the
// bytes of every group of the space in the layout's order. Copies, nothing else. Engine thread;
// the pages are whole and computed (gather), or nobody else's and in no step (scatter).

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/kv_pool.h"

namespace artery::engine {

// Of one page, all groups.
std::int64_t payload_page_bytes(const KvPool& pool);
// `payload`: pages.size() * payload_page_bytes() bytes.
void gather_pages(const KvPool& pool, std::span<const PageRef> pages, std::span<std::byte> payload);
// `payload`: payload_page_bytes() bytes.
void scatter_page(KvPool& pool, PageId page, std::span<const std::byte> payload);

}  // namespace artery::engine
