#pragma once
// Recorded workloads: lengths, arrival times and shared prefixes. Reads, told apart by their first
// line:
//   mooncake      {"timestamp" ms, "input_length", "output_length", "hash_ids"} a line, one id per
//                 512 tokens (kvcache-ai/Mooncake, FAST'25)
//   rtp-llm       {"ts" ms, "il", "ol", "bh"} a line, one hash per full 1,024 tokens
//   claude-code   a header line {"session","block_size"} before its requests {"s","t" s,"in","out",
//                 "h": [[first id, run length], ...]}; ids are local to a session
//   azure         CSV TIMESTAMP,ContextTokens,GeneratedTokens (Azure LLM inference traces)
//   vidur         CSV num_prefill_tokens,num_decode_tokens,...; no times
//   arrivals      "relative ms <TAB> input tokens" lines; no output lengths
// Pure functions of their input, any thread. Never trusts a length or a count in a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace artery::bench {

struct TraceRow {
  double time_s = 0;  // from the first row
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;     // at least 1
  std::vector<std::uint64_t> blocks;  // equal value: equal text and equal text before it
};

struct Trace {
  std::string format;
  std::int64_t block_tokens = 0;  // tokens of one block; 0: no prefix information
  bool timed = true;
  std::vector<TraceRow> rows;  // ascending time
};

// The first `rows_max` rows by time. kBadFile names the line; kUnsupported: none of the formats.
Result<Trace> read_trace(std::string_view text, std::size_t rows_max);

// The bytes of a file, unpacked when it is zstd (by its magic number). kTooLarge beyond `bytes_max`
// unpacked; kBadFile.
Result<std::string> read_packed(const std::string& path, std::size_t bytes_max);

}  // namespace artery::bench
