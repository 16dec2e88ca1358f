#pragma once
// Requests of a recorded workload, as a cache sees them: when, how long, and which blocks of text.
// Reads JSON Lines, plain or zstd, told apart by what is in them:
//   mooncake     {"timestamp" ms, "input_length", "output_length", "hash_ids"}: an id per 512
//   tokens,
//                the last one maybe of fewer (kvcache-ai/Mooncake, FAST'25)
//   rtp-llm      {"ts" ms, "il", "ol", "bh"}: a hash per full 1,024 tokens
//   claude-code  a header line {"session", "block_size"} before its requests {"s", "t" s, "in",
//                "out", "h": [[first id, run length], ...]}; ids are local to a session
// Pure functions of their input; never trusts a length or a count in a file.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"

namespace artery::sim {

struct Run {
  std::uint64_t first = 0;  // id of a block, then those that follow it
  std::uint32_t count = 0;
};

struct CacheRequest {
  double time_s = 0;       // ascending
  std::uint32_t root = 0;  // ids are those of this root: the session, or 0
  std::int64_t input_tokens = 0, output_tokens = 0;
  std::vector<Run> runs;
  std::int64_t blocks = 0;  // sum of the runs
};

struct CacheTrace {
  std::string format;
  std::int64_t block_tokens = 0;
  bool is_agents = false;  // sessions of agents, by their nature
  std::vector<CacheRequest> requests;
};

// `progress(done, total)` in bytes of the file. Sessions of Claude Code begin at random within 24
// hours, and times that are bins of 3 s (Mooncake's conversations) are spread over them, both by
// `seed`. kBadFile names the line; kUnsupported: none of the formats.
Result<CacheTrace> read_cache_trace(
    const std::string& path,
    const FileSystem& files,
    std::uint64_t seed,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {}
);

}  // namespace artery::sim
