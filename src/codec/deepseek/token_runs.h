#pragma once
// Token ids to pieces of text (R4 of ../shared/golden/codec/README-outputs.md): each added token is
// one, runs of other ids of a chunk are one. Bytes that are no whole characters yet are held. A
// value; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "codec/api/output_sink.h"
#include "codec/deepseek/output_machine.h"
#include "codec/deepseek/output_processor.h"
#include "codec/tokenizer.h"

namespace artery::codec::deepseek {

class TokenRuns {
 public:
  struct Run {
    std::string text;
    bool is_added = false;
    std::int64_t tokens = 0;
    PieceLogprobs logprobs;
  };
  // recipe: a run that ends in a broken character is held as a whole. safe: only that character is.
  explicit TokenRuns(bool is_safe) : is_safe_(is_safe) {}

  // `logprobs`: none or one an id. Appends to `out`; a run may be empty, its tokens count.
  void push(
      std::span<const TokenId> ids,
      std::span<const IdLogprob> logprobs,
      const Tokenizer& tokenizer,
      std::vector<Run>& out
  );
  // Safe only, at the end: what is held, with replacement characters. recipe loses it.
  void finish(std::vector<Run>& out);

 private:
  void add(TokenId id, const IdLogprob* logprob, const Tokenizer& tokenizer);
  void end_chunk(std::vector<Run>& out);
  void end_run(std::size_t bytes, std::vector<Run>& out);

  bool is_safe_;
  std::string bytes_;  // of the run begun
  std::int64_t tokens_ = 0;
  PieceLogprobs logprobs_;  // begins: in bytes_
};

}  // namespace artery::codec::deepseek
