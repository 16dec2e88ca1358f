#pragma once
// What the window groups of a model need, in positions and pages. Values, any thread.
//
// A row at position p reads window entries of positions p - tokens + 1 .. p, in each window layer.
// So it depends, through all of them, on the rows from p - reach on, and on the global entries of
// all positions. Rows from rebuild_from(p) on, run over the global entries that are there, give
// exact windows and exact rows from p on; what they leave in windows before is not exact.

#include <cstdint>

#include "model/kv_layout.h"

namespace artery::engine {

struct WindowShape {
  std::int64_t tokens = 0;  // the widest window, its own position included; 0: no window groups
  std::int64_t reach = 0;   // sum over the window layers of their windows without the own position

  std::int64_t replay = 0;  // rows of a rebuild that is not exact, fewer than reach; 0: exact

  static WindowShape of(const model::KvLayout& layout);

  explicit operator bool() const { return tokens > 0; }
  // Pages before a page boundary that rows behind it read.
  std::int64_t pages() const;
  // First page that rows from position `at` on read, or a window saved at the last whole page.
  std::int64_t first_page(std::int64_t at) const;
  // Where the rows begin that rebuild the windows before `at`: page-aligned, at most `at`. With
  // `replay` the last so many, as bounded replay of DeepSeek-V4.1 does: what they leave out of
  // their windows makes other bits than a cold run's.
  std::int64_t rebuild_from(std::int64_t at) const;
  // The same, always exact.
  std::int64_t exact_from(std::int64_t at) const;
};

}  // namespace artery::engine
