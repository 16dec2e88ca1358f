#pragma once
// DeepSeek's output to deltas: text or token chunks through the state machine of
// ../shared/golden/codec/README-outputs.md (R1 to R7) into an OutputSink. A copy is a snapshot.
// Linear in the input, whatever it holds. One thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "codec/api/convert.h"
#include "codec/api/output_sink.h"
#include "codec/deepseek/encoding.h"
#include "codec/tokenizer.h"

namespace artery::codec::deepseek {

// One id's log probability and its alternatives, as the engine gives them.
struct IdLogprob {
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;
};

enum class BackendFinish : std::uint8_t { kStop, kLength, kContentFilter };

struct ProcessorOptions {
  api::ParsingOptions parsing;
  SpecialTexts specials;
  api::Faithfulness faithfulness = api::Faithfulness::kRecipe;
};

class OutputProcessor {
 public:
  // `tokenizer`: needed for token chunks, and then reasoning tokens are counted with it; may be
  // null. Both outlive the processor or are held elsewhere.
  OutputProcessor(ProcessorOptions options, const Tokenizer* tokenizer);
  OutputProcessor(const OutputProcessor& other);
  OutputProcessor& operator=(const OutputProcessor& other);
  OutputProcessor(OutputProcessor&&) noexcept;
  OutputProcessor& operator=(OutputProcessor&&) noexcept;
  ~OutputProcessor();

  // The first one, or the first output, starts the answer; later ones are ignored.
  Result<> ready(
      const std::optional<api::PromptUsage>& usage,
      const std::optional<std::string>& fingerprint,
      api::OutputSink& sink
  );
  // `token_count`: what it counts for in the usage.
  Result<> text(std::string_view text, std::int64_t token_count, api::OutputSink& sink);
  // `logprobs`: none, or one per id. kInvalidArgument: lengths differ, or no tokenizer.
  Result<> tokens(
      std::span<const TokenId> ids, std::span<const IdLogprob> logprobs, api::OutputSink& sink
  );
  Result<> finish(BackendFinish reason, api::OutputSink& sink);
  // The input ends. Repeated calls do nothing.
  Result<> end(api::OutputSink& sink);

  // The answer has ended (a stop sequence, a finish, the end); pushing more is kInvalidArgument.
  bool finished() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace artery::codec::deepseek
