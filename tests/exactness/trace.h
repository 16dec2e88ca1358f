#pragma once
// All that a caller sees of an answer, down to the last bit, and how two of them differ. Plain
// values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace artery::exactness {

struct ChoiceTrace {
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::uint32_t>> logprobs;  // per token: ids, ranks, floats as bits
  std::vector<std::vector<std::uint32_t>> prompt_logprobs;
  std::optional<engine::Finish> finish;
  std::optional<Position> next;  // where the next event must begin
  bool in_order = true;
};

struct Trace {
  explicit Trace(int count) : choices(static_cast<std::size_t>(count)) {}
  std::vector<ChoiceTrace> choices;

  void absorb(const engine::Event& event);
  bool finished() const;
};

// How `got` differs from `wanted`, naming the first differing token; empty when it does not. Of a
// cancelled request, what it got must be how `wanted` begins.
std::string difference(const Trace& got, const Trace& wanted, bool cancelled);

}  // namespace artery::exactness
