#pragma once
// The lines of ../shared/golden/codec/images.jsonl, with what the record leaves out of its own
// inputs (large or repeated ones) put back in, so that each says all that `artery codec image`
// needs. A pure function, any thread.

#include <string>
#include <vector>

namespace artery::codec {

// None where the record is missing.
std::vector<std::string> image_lines();

}  // namespace artery::codec
