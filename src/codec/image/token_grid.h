#pragma once
// V4.1's image sizes: to which size an image of a request is brought, and how many tokens it then
// takes (patches of 14, cells of 3 x 3 patches). ../shared/spec/v41-model.md section 8.2, run until
// nothing changes, as deepseek-recipe 0.2.0 does. Pure functions, any thread.

#include <cstdint>
#include <optional>

#include "codec/image/image.h"

namespace artery::codec::image {

inline constexpr int kPatch = 14;                    // pixels a side
inline constexpr int kCell = 3 * kPatch;             // pixels a side of what one token stands for
inline constexpr int kTokensMax = 1024;              // of one image
inline constexpr std::int64_t kAreaMin = 544 * 544;  // pixels; smaller images are enlarged
inline constexpr int kStoredSideMax =
    16383 / kPatch * kPatch;  // WebP's longest side, whole patches

// Rows x (columns + 1) + 2 of the cells that cover `size`.
int tokens_of(Size size);

// The size the model sees, sides multiples of 14. Nullopt for an empty size, or one that never
// settles.
std::optional<Size> fitted_size(Size size);

// The same within what WebP can store.
std::optional<Size> stored_size(Size size);

// With low detail the longer side is first brought down to `long_side` (at least 1).
Size low_detail_size(Size size, int long_side);

// Tokens beyond the placeholder's one. Nullopt as in fitted_size.
std::optional<int> token_adjustment(Size size);

}  // namespace artery::codec::image
