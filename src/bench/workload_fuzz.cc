// Any bytes as a trace, a ShareGPT file or a stream of a server: an answer or an error, no crash.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bench/sharegpt_reader.h"
#include "bench/sse_parser.h"
#include "bench/stream_event.h"
#include "bench/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace artery::bench;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 3) {
    case 0: {
      const auto trace = read_trace(text, 1000);
      if (!trace) break;
      double before = 0;
      for (const TraceRow& row : trace->rows) {
        if (row.time_s < before || row.input_tokens < 1 || row.output_tokens < 1) std::abort();
        before = row.time_s;
      }
      break;
    }
    case 1: {
      const auto talks = read_sharegpt(text, 100);
      if (talks && talks->empty()) std::abort();
      break;
    }
    default: {
      SseParser parser;
      const std::size_t half = text.size() / 2;
      for (const std::string_view part : {text.substr(0, half), text.substr(half)})
        parser.push(part, [](std::string_view event) { read_stream_event(event); });
      error_text(text);
    }
  }
  return 0;
}
