#include "tensor/isa.h"

namespace artery::tensor {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
#endif

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool supported(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return has_avx2();
    case Isa::kAvx512:
      return has_avx512();
  }
  return false;
}

Isa best_isa() {
  if (supported(Isa::kAvx512)) return Isa::kAvx512;
  if (supported(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kScalar;
}

Result<Isa> parse_isa(std::string_view s) {
  if (s == "auto") return best_isa();
  Isa isa = Isa::kScalar;
  if (s == "avx2") {
    isa = Isa::kAvx2;
  } else if (s == "avx512") {
    isa = Isa::kAvx512;
  } else if (s != "scalar" && s != "ref") {
    return fail(
        Code::kInvalidArgument, "unknown instruction set '{}': use auto, scalar, avx2 or avx512", s
    );
  }
  if (!supported(isa)) {
    return fail(
        Code::kUnsupported,
        "this machine has no {}: use --isa auto, which picks {} here",
        name(isa),
        name(best_isa())
    );
  }
  return isa;
}

}  // namespace artery::tensor
