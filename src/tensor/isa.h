#pragma once
// Which instruction set the kernels use. Detected once, overridden by --isa. All ISAs give the same
// bits (16 canonical lanes, design "Numerics"); kScalar is plain C++ and runs everywhere.

#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::tensor {

enum class Isa { kScalar, kAvx2, kAvx512 };

std::string_view name(Isa isa);  // "scalar", "avx2", "avx512"
bool supported(Isa isa);         // on this machine
Isa best_isa();                  // the fastest supported one
Result<Isa> parse_isa(std::string_view s
);  // "auto", "scalar"/"ref", "avx2", "avx512"; kInvalidArgument, kUnsupported

}  // namespace artery::tensor
