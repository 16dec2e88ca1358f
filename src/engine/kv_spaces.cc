#include "engine/kv_spaces.h"

#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace artery::engine {

WindowShape WindowShape::of(const model::KvLayout& layout) {
  WindowShape shape;
  for (const model::KvGroup& group : layout.groups) {
    if (group.kind != model::KvKind::kWindow) continue;
    CHECK(group.window_tokens > 0 && group.ratio == 1, "a window group without a window");
    shape.tokens = std::max<std::int64_t>(shape.tokens, group.window_tokens);
    shape.reach += std::int64_t{group.geometry.layers} * (group.window_tokens - 1);
  }
  return shape;
}

std::int64_t WindowShape::pages() const { return pages_for(tokens - 1); }

std::int64_t WindowShape::first_page(std::int64_t at) const {
  return std::max<std::int64_t>(0, at / kPageTokens - pages());
}

std::int64_t WindowShape::rebuild_from(std::int64_t at) const {
  if (replay > 0) return std::max<std::int64_t>(0, at - replay) / kPageTokens * kPageTokens;
  return exact_from(at);
}

std::int64_t WindowShape::exact_from(std::int64_t at) const {
  return std::max<std::int64_t>(0, at - reach) / kPageTokens * kPageTokens;
}

Result<std::unique_ptr<KvSpaces>> KvSpaces::make(
    const model::KvLayout& layout, std::int64_t pages, std::int64_t window_pages
) {
  CHECK(!layout.groups.empty() && layout.page_tokens == kPageTokens);
  // Not make_unique: the constructor is private.
  std::unique_ptr<KvSpaces> out(new KvSpaces);
  out->shape_ = WindowShape::of(layout);
  CHECK((window_pages > 0) == static_cast<bool>(out->shape_));
  std::vector<model::KvGroup> global;
  std::vector<model::KvGroup> window;
  for (const model::KvGroup& group : layout.groups) {
    (group.kind == model::KvKind::kWindow ? window : global).push_back(group);
    out->kinds_.push_back(group.kind);
  }
  out->global_ = TRY(KvPool::make(global, pages));
  if (out->shape_) out->window_ = TRY(KvPool::make(window, window_pages));
  std::size_t globals = 0;
  std::size_t windows = 0;
  for (const model::KvKind kind : out->kinds_) {
    out->kv_.push_back(
        kind == model::KvKind::kWindow ? out->window_->kv()[windows++]
                                       : out->global_->kv()[globals++]
    );
  }
  return out;
}

}  // namespace artery::engine
