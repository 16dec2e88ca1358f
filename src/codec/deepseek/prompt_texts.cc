#include "codec/deepseek/prompt_texts.h"

#include <array>

namespace artery::codec::deepseek {
namespace {

constexpr CallTags kTagsV4{"tool_calls", "invoke", "parameter"};
constexpr CallTags kTagsV41{" calls", " invoke", " parameter"};

constexpr std::string_view kV4High =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the "
    "problem to resolve the root cause, rigorously stress-testing your logic against "
    "all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every "
    "intermediate step, considered alternative, and rejected hypothesis to ensure "
    "absolutely no assumption is left unchecked.\n"
    "\n";
constexpr std::string_view kV4Max =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to "
    "chance: exhaustively decompose the problem into its most fundamental "
    "components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from "
    "multiple angles and are certain that no assumption remains unchecked and no "
    "error remains undiscovered.\n"
    "\n";

constexpr std::string_view kV41Low =
    "Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
constexpr std::string_view kV41High =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
constexpr std::string_view kV41Max =
    "Reasoning Effort: 100 (range 1-100, the higher the value, the more thorough the "
    "reasoning)\n\n";

using enum ToolPiece;

constexpr auto kToolPrompt = std::to_array<ToolPromptPiece>({
    {kText,
     "## Tools\n"
     "\n"
     "You have access to a set of tools to help answer the user's question. You can "
     "invoke tools by writing a \"<"},
    {kDsml},
    {kBlock},
    {kText,
     ">\" block like the following:\n"
     "\n"
     "<"},
    {kDsml},
    {kBlock},
    {kText,
     ">\n"
     "<"},
    {kDsml},
    {kInvoke},
    {kText,
     " name=\"$TOOL_NAME\">\n"
     "<"},
    {kDsml},
    {kParameter},
    {kText, " name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</"},
    {kDsml},
    {kParameter},
    {kText,
     ">\n"
     "...\n"
     "</"},
    {kDsml},
    {kInvoke},
    {kText,
     ">\n"
     "<"},
    {kDsml},
    {kInvoke},
    {kText,
     " name=\"$TOOL_NAME2\">\n"
     "...\n"
     "</"},
    {kDsml},
    {kInvoke},
    {kText,
     ">\n"
     "</"},
    {kDsml},
    {kBlock},
    {kText,
     ">\n"
     "\n"
     "String parameters should be specified as is and set `string=\"true\"`. For all "
     "other types (numbers, booleans, arrays, objects), pass the value in JSON format "
     "and set `string=\"false\"`.\n"
     "\n"
     "If thinking_mode is enabled (triggered by "},
    {kThink},
    {kText, "), you MUST output your complete reasoning inside "},
    {kThink},
    {kText, "..."},
    {kThinkEnd},
    {kText,
     " BEFORE any tool calls or final response.\n"
     "\n"
     "Otherwise, output directly after "},
    {kThinkEnd},
    {kText,
     " with tool calls or final response.\n"
     "\n"
     "### Available Tool Schemas\n"
     "\n"},
    {kSchemas},
    {kText,
     "\n"
     "\n"
     "You MUST strictly follow the above defined tool name and parameter schemas to "
     "invoke tool calls.\n"},
});

}  // namespace

const CallTags& call_tags(api::ModelVersion version) {
  return version == api::ModelVersion::kV4 ? kTagsV4 : kTagsV41;
}

std::string_view effort_text(api::ModelVersion version, api::Effort effort) {
  const bool is_v4 = version == api::ModelVersion::kV4;
  if (effort == api::Effort::kLow) return is_v4 ? std::string_view() : kV41Low;
  if (effort == api::Effort::kMax) return is_v4 ? kV4Max : kV41Max;
  return is_v4 ? kV4High : kV41High;
}

std::span<const ToolPromptPiece> tool_prompt() { return kToolPrompt; }

}  // namespace artery::codec::deepseek
