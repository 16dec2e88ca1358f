#include "codec/deepseek/output_grammar.h"

#include <string_view>
#include <utility>

namespace artery::codec::deepseek {
namespace {

Pattern plain(std::string_view text, MatchAction action) {
  Pattern pattern;
  pattern.bytes = text;
  pattern.action = action;
  return pattern;
}

Pattern with_special(
    std::string_view before, std::string_view special, std::string_view after, MatchAction action
) {
  Pattern pattern = plain(before, action);
  pattern.special_begin = before.size();
  pattern.special_end = before.size() + special.size();
  pattern.bytes += special;
  pattern.bytes += after;
  return pattern;
}

Pattern block_begin(const SpecialTexts& specials, bool is_safe) {
  Pattern pattern = with_special("<", specials.dsml, "", MatchAction::kOpenCalls);
  pattern.after_newlines = true;
  pattern.opens_block = is_safe;
  return pattern;
}

Pattern think_end(const SpecialTexts& specials, MatchAction action) {
  return with_special("", specials.think_end, "", action);
}

void add_stops(const std::vector<std::string>& stops, PatternSet& set) {
  for (std::size_t i = 0; i < stops.size(); ++i) {
    Pattern pattern = plain(stops[i], MatchAction::kStop);
    pattern.stop = i;
    set.add(std::move(pattern));
  }
}

}  // namespace

OutputGrammar::OutputGrammar(
    const api::ParsingOptions& parsing, const SpecialTexts& specials, api::Faithfulness faithfulness
)
    : is_safe(faithfulness == api::Faithfulness::kSafe), json_output(parsing.json_output) {
  const auto set = [&](OutputState state) -> PatternSet& {
    return sets[static_cast<std::size_t>(state)];
  };
  for (const std::string& stop : parsing.stops) {
    if (!stop.empty()) stops.push_back(stop);
  }
  const Pattern open = block_begin(specials, is_safe);
  const Pattern closer = with_special("</", specials.dsml, "", MatchAction::kCloser);

  Pattern reasoning_end = think_end(specials, MatchAction::kThinkEnd);
  reasoning_end.after_newlines = true;
  set(OutputState::kReasoning).add(std::move(reasoning_end));
  if (parsing.tool_calls) set(OutputState::kReasoning).add(open);

  PatternSet& content = set(OutputState::kContent);
  if (!json_output) add_stops(stops, content);
  if (parsing.tool_calls) content.add(open);
  content.add(think_end(specials, MatchAction::kStrayEnd));
  if (json_output) {
    content.add(plain("```json\n", MatchAction::kFence));
    content.add(plain("```\n", MatchAction::kFence));
    content.add(plain("{", MatchAction::kBareJson));
    content.add(plain("[", MatchAction::kBareJson));
  }
  add_stops(stops, set(OutputState::kJson));
  set(OutputState::kJson).add(plain("\n```", MatchAction::kFenceEnd));
  if (parsing.tool_calls) set(OutputState::kAfterJson).add(open);

  PatternSet& calls = set(OutputState::kCalls);
  PatternSet& arguments = set(OutputState::kArguments);
  if (is_safe) {
    for (const std::string_view space : {" ", ""}) {
      const std::string invoke = std::string(space) + "invoke";
      const std::string parameter = std::string(space) + "parameter";
      calls.add(with_special("<", specials.dsml, invoke, MatchAction::kInvokeHead));
      arguments.add(with_special("<", specials.dsml, parameter, MatchAction::kParamHead));
    }
  }
  calls.add(plain("invoke name=\"", MatchAction::kBeginName));
  calls.add(with_special("</", specials.dsml, "tool_calls>", MatchAction::kCloseBlock));
  calls.add(with_special("</", specials.dsml, " calls>", MatchAction::kCloseBlock));
  set(OutputState::kName).add(plain("\"", MatchAction::kNameEnd));
  arguments.add(plain("parameter name=", MatchAction::kBeginParam));
  arguments.add(closer);
  set(OutputState::kParamName).add(plain(" ", MatchAction::kParamNameEnd));
  set(OutputState::kParamType).add(plain("true\">", MatchAction::kStringValue));
  set(OutputState::kParamType).add(plain("false\">", MatchAction::kRawValue));
  set(OutputState::kParamHead).add(closer);
  set(OutputState::kParamHead).add(with_special("<", specials.dsml, "", MatchAction::kOpener));
  set(OutputState::kValue).add(closer);

  for (PatternSet& each : sets) each.finish();

  using api::InitialStage;
  if (parsing.starts_in_calls) {
    start = OutputState::kCalls;
  } else if (!parsing.stage) {
    drops_leading_newlines = true;
  } else if (*parsing.stage != InitialStage::kContentContinuation) {
    start = OutputState::kReasoning;
    drops_leading_newlines = *parsing.stage == InitialStage::kReasoningStart;
  }
}

}  // namespace artery::codec::deepseek
