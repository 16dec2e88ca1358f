#pragma once
// A real model with its golden folder (../shared/golden/models/NAME): prompts, stored logits, and
// the file's weights where they are present. One thread.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/load.h"
#include "tensor/backend.h"
#include "testing/model_runner.h"

namespace artery::golden {

struct Prompt {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<std::int32_t> positions;  // where logits are stored
  std::string full_logits;              // path of the last position's, or empty
};

// llama.cpp's distance from the truth over all positions of the prompts.
struct PeerDistance {
  double kl_mean = 0;
  double kl_p99 = 0;
  double top1_agreement = 0;
};

struct GoldenModel {
  std::string folder;
  std::string weights;          // path of the GGUF
  std::vector<Prompt> prompts;  // the empty ones left out
  PeerDistance peer;
};

// kNotFound, with the path, when golden data or weights are absent: the test skips.
Result<GoldenModel> find_golden_model(const std::string& name, const std::string& weights);

// Whether ./test.sh --all asked for the long ones (ARTERY_TEST_LONG=1).
bool run_long_tests();

// Prompts of at most `tokens_max` ids, all when run_long_tests().
std::vector<Prompt> chosen_prompts(const GoldenModel& model, std::size_t tokens_max);

// A loaded model and what it stands on.
struct LoadedModel {
  std::unique_ptr<tensor::ComputePool> pool;
  std::unique_ptr<tensor::Backend> backend;
  std::unique_ptr<model::Model> model;
};
enum class Numerics { kReference, kFast };
Result<LoadedModel> load_golden(const GoldenModel& golden, Numerics numerics);

// Tokens of the longest prompt that runs without ARTERY_TEST_LONG: a sanitizer makes the reference
// path ten times slower.
#if defined(__SANITIZE_ADDRESS__)
#define ARTERY_GOLDEN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ARTERY_GOLDEN_SANITIZED 1
#endif
#endif
#ifdef ARTERY_GOLDEN_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr std::size_t kShortTokens = kSanitized ? 5 : 100;
constexpr std::int64_t kChunk = 64;  // rows of one forward

// The reference path's logits of SmolLM2 at every position of a prompt, [tokens, vocab]. Two tests
// want them and they take a minute: made once in the process.
class ReferenceLogits {
 public:
  static Result<ReferenceLogits*> of(const GoldenModel& golden);
  const std::vector<float>& at_all_positions(const Prompt& prompt);

 private:
  LoadedModel loaded_;
  testing::ModelRunner runner_;
  std::map<std::string, std::vector<float>> done_;
};

}  // namespace artery::golden
