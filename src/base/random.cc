#include "base/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace artery {
namespace {

class SystemRandom final : public Random {
 public:
  std::uint64_t next() override {
    std::uint64_t value = 0;
    const ssize_t got = ::getrandom(&value, sizeof value, 0);
    CHECK(got == static_cast<ssize_t>(sizeof value), "getrandom failed");
    return value;
  }
};

}  // namespace

Random& system_random() {
  static SystemRandom instance;
  return instance;
}

}  // namespace artery
