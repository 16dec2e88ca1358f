#pragma once
// Three ways to resize pixels, each in another's fixed order of sums: the two that the official
// package takes from OpenCV (INTER_AREA, INTER_CUBIC), and Pillow's bicubic, which the model's own
// preprocessing takes. Pure functions, any thread. Sizes above 0.

#include "codec/image/image.h"

namespace artery::codec::image {

// Means of the source area under each pixel; `to` no longer than the source on either side.
Pixels shrink_area(const Pixels& from, Size to);

// Cubic over 4 x 4 source pixels (a = -0.75) wherever the sizes lead: no smoothing when it shrinks.
Pixels resize_cubic(const Pixels& from, Size to);

// Cubic (a = -0.5) over as many source pixels as a shrunk one covers; across, then down, as Pillow
// did always before 13.
Pixels resize_antialiased(const Pixels& from, Size to);

// `resize` to the size within `canvas` that keeps the aspect, centred on grey 127. The sizes and
// places are those of Pillow's ImageOps.pad (halves to even).
using Resize = Pixels (*)(const Pixels&, Size);
Pixels pad(const Pixels& from, Size aspect_of, Size canvas, Resize resize);

}  // namespace artery::codec::image
