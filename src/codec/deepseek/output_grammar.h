#pragma once
// The states of the output machine and what each looks for
// (../shared/golden/codec/README-outputs.md R1). Built once of a request's options, immutable,
// shared by snapshots.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "codec/api/convert.h"
#include "codec/api/output_sink.h"
#include "codec/deepseek/encoding.h"
#include "codec/deepseek/output_patterns.h"

namespace artery::codec::deepseek {

enum class OutputState : std::uint8_t {
  kReasoning,
  kContent,
  kJson,
  kAfterJson,
  kCalls,  // between calls
  kName,
  kArguments,  // between parameters
  kParamName,
  kParamType,
  kParamHead,  // safe: name and type at once
  kValue,
  kClosed
};
inline constexpr std::size_t kOutputStates = 12;

struct OutputGrammar {
  OutputGrammar(
      const api::ParsingOptions& parsing,
      const SpecialTexts& specials,
      api::Faithfulness faithfulness
  );
  const PatternSet& of(OutputState state) const { return sets[static_cast<std::size_t>(state)]; }

  std::array<PatternSet, kOutputStates> sets;
  std::vector<std::string> stops;  // without empty ones
  bool is_safe = false;
  bool json_output = false;
  OutputState start = OutputState::kContent;
  bool drops_leading_newlines = false;  // at the start
};

}  // namespace artery::codec::deepseek
