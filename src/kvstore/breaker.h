#pragma once
// Takes a sick disk out of service: three failures in a row, of reads or of writes, open it for 5
// seconds, then for twice as long each time a probe fails, up to 300 s. A probe that succeeds
// closes it. Plain value on given times, no clock: the store thread's.

#include <cstdint>

namespace artery::kvstore {

class Breaker {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite };
  static constexpr int kFailures = 3;
  static constexpr double kFirstS = 5, kLastS = 300;

  // True: this one opened it.
  bool failure(Kind kind, std::int64_t now_ns);
  // Opens at once, where one failure says that all others will come, too.
  bool trip(std::int64_t now_ns);
  void success(Kind kind);
  bool is_open() const { return is_open_; }

  // While open: it is time to try one read and one write.
  bool wants_probe(std::int64_t now_ns) const;
  void probe_begins() { is_probing_ = true; }
  void probe_ended(bool is_well, std::int64_t now_ns);

 private:
  void open(std::int64_t now_ns);
  int failures_[2] = {0, 0};
  bool is_open_ = false;
  bool is_probing_ = false;
  double wait_s_ = 0;  // of the current or last opening
  std::int64_t until_ns_ = 0;
};

}  // namespace artery::kvstore
