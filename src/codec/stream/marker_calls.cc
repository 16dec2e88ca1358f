#include "codec/stream/marker_calls.h"

#include <string>

namespace artery::codec {

void MarkerCalls::take(char c, OutputEvents& out) {
  if (!looks_for_markers()) {
    take_passed(c, out);
    return;
  }
  std::string passed;
  const int found = finder_.push(markers_, c, passed);
  if (!passed.empty()) {
    const std::string rest = finder_.flush();
    for (const char byte : passed) take_passed(byte, out);
    for (const char byte : rest) take(byte, out);
  }
  if (found >= 0) take_marker(found, out);
}

void MarkerCalls::take_rest(OutputEvents& out) {
  for (const char byte : finder_.flush()) take_passed(byte, out);
}

}  // namespace artery::codec
