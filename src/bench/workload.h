#pragma once
// What a load generator sends: prompts, lengths and arrival times. Plain values.

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace artery::bench {

// The randomness of a data set: the same seed gives the same requests.
using Dice = std::mt19937_64;

struct WorkRequest {
  std::string prompt;
  std::int64_t input_tokens = 0;   // of the prompt, special tokens the server adds included
  std::int64_t output_tokens = 0;  // asked for
  double arrival_s = 0;            // from the start of the run
};

struct Workload {
  std::vector<WorkRequest> requests;  // ascending arrival
  std::string note;                   // what a reader of the report should know
  bool timed = false;                 // arrival times come with the data set
};

// Counts the tokens of a text as the server under test does, special tokens of a plain prompt
// included.
class TokenCounter {
 public:
  virtual ~TokenCounter() = default;
  virtual Result<std::int64_t> count(std::string_view text) = 0;
};

// Sets arrival times of a gamma process with `rate` requests a second and shape `burstiness` (1:
// Poisson; smaller comes in bursts; infinity: evenly), scaled so that the last one comes at
// requests / rate as other load generators do. An infinite rate puts all at 0.
void set_arrivals(std::vector<WorkRequest>& requests, double rate, double burstiness, Dice& dice);

}  // namespace artery::bench
