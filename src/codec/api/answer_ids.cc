#include "codec/api/answer_ids.h"

#include <chrono>
#include <memory>
#include <string_view>

#include "base/random.h"

namespace artery::codec::api {
namespace {

class SystemIds : public IdSource {
 public:
  std::string call_tail() override {
    constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    std::string tail;
    std::uint64_t bits = 0;
    for (int i = 0; i < 20; ++i) {
      if (i % 10 == 0) bits = next();  // 62^10 fits into it
      tail += kLetters[bits % kLetters.size()];
      bits /= kLetters.size();
    }
    bits = next();
    for (int i = 0; i < 4; ++i, bits /= 10) tail += static_cast<char>('0' + bits % 10);
    return tail;
  }

  std::int64_t unix_time_s() override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
  }

 private:
  // SplitMix64 (Steele, Lea, Flood 2014): ids must differ, they are no secrets, and the kernel's
  // generator costs more than the rest of an event.
  static std::uint64_t next() {
    thread_local std::uint64_t state = system_random().next();
    std::uint64_t mixed = state += 0x9E3779B97F4A7C15ULL;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    return mixed ^ (mixed >> 31);
  }
};

}  // namespace

std::shared_ptr<IdSource> system_ids() {
  static const std::shared_ptr<IdSource> ids = std::make_shared<SystemIds>();
  return ids;
}

std::string make_call_id(std::size_t number, bool empty_thoughts, IdSource& ids) {
  std::string id = number < 10 ? "call_0" : "call_";
  id += std::to_string(number);
  id += empty_thoughts ? "_ET_" : "_";
  id += ids.call_tail();
  return id;
}

}  // namespace artery::codec::api
