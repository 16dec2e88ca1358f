// Any bytes: parse must refuse or give an array whose size agrees with its shape.

#include <cstdlib>

#include "base/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> file(data, size);
  const artery::Result<artery::NpyArray> array =
      artery::NpyArray::parse(std::as_bytes(file), "fuzz.npy");
  if (!array) return 0;
  std::uint64_t count = 1;
  for (const std::int64_t dimension : array->shape()) {
    count *= static_cast<std::uint64_t>(dimension);
  }
  if (count != array->size() || array->bytes().size() > size) std::abort();
  return 0;
}
