#include "codec/byte_hash.h"

#include "base/random.h"

namespace artery::codec {

const std::uint64_t kHashSeed = system_random().next();

}  // namespace artery::codec
