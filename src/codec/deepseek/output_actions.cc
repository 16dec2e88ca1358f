// What the output machine gives out: text by state, and what a match means.

#include <utility>

#include "codec/api/json_out.h"
#include "codec/api/json_tree.h"
#include "codec/deepseek/output_machine.h"

namespace artery::codec::deepseek {

using api::OutputSink;
using api::TokenLogprob;

// recipe: all of the piece, whatever part of it is given out. safe: those of the tokens that begin
// in the part, so that each comes once.
std::span<const TokenLogprob> OutputMachine::logprobs_of(
    const Piece& piece, std::uint64_t begin, std::uint64_t end
) {
  const PieceLogprobs& all = piece.logprobs;
  if (!grammar_->is_safe || all.entries.empty()) return all.entries;
  some_logprobs_.clear();
  for (std::size_t i = 0; i < all.entries.size(); ++i) {
    const std::uint64_t at = piece.begin + all.begins[i];
    if (at >= begin && at < end) some_logprobs_.push_back(all.entries[i]);
  }
  return some_logprobs_;
}

void OutputMachine::give(
    const Piece& piece, std::uint64_t begin, std::uint64_t end, OutputSink& sink
) {
  switch (state_) {
    case OutputState::kReasoning: {
      const std::string_view text = bytes_or_none(begin, end);
      if (keeps_reasoning_) reasoning_ += text;
      sink.reasoning(text, logprobs_of(piece, begin, end));
      return;
    }
    case OutputState::kContent:
      if (grammar_->json_output) {
        give_blank(piece, begin == end, sink);
        return;
      }
      [[fallthrough]];
    case OutputState::kJson:
      sink.content(bytes_or_none(begin, end), logprobs_of(piece, begin, end));
      return;
    case OutputState::kAfterJson:
      give_blank(piece, begin == end, sink);
      return;
    case OutputState::kName:
      name_ += bytes_or_none(begin, end);
      return;
    case OutputState::kParamName:
      sink.arguments(bytes_or_none(begin, end));
      return;
    case OutputState::kValue:
      give_value(bytes_or_none(begin, end), sink);
      return;
    case OutputState::kCalls:
    case OutputState::kArguments:
    case OutputState::kParamType:
    case OutputState::kParamHead:
    case OutputState::kClosed:
      return;
  }
}

// Text outside of JSON that was asked for. recipe: a blank for each piece. safe: one for all of it.
void OutputMachine::give_blank(const Piece& piece, bool is_empty, OutputSink& sink) {
  if (!grammar_->is_safe) {
    sink.content(" ", piece.logprobs.entries);
    return;
  }
  if (blank_given_ || is_empty) return;
  blank_given_ = true;
  sink.content(" ", {});
}

void OutputMachine::give_value(std::string_view text, OutputSink& sink) {
  if (drops_value_) return;
  if (!is_string_ && grammar_->is_safe) {
    raw_ += text;
  } else if (!is_string_) {
    sink.arguments(text);
  } else {
    scratch_.clear();
    api::put_json_inside(scratch_, text);
    sink.arguments(scratch_);
  }
}

void OutputMachine::act(const Pattern& pattern, StepResult result, bool waits, OutputSink& sink) {
  switch (pattern.action) {
    case MatchAction::kStop:
      stopped_ = grammar_->stops[pattern.stop];
      return;
    case MatchAction::kThinkEnd:
      enter(OutputState::kContent);
      drops_newlines_ = true;
      return;
    case MatchAction::kStrayEnd:
      enter(OutputState::kContent);
      drops_newlines_ = false;
      return;
    case MatchAction::kOpenCalls:
      drops_newlines_ = false;
      name_.clear();
      enter(result == StepResult::kInvoke ? OutputState::kName : OutputState::kCalls);
      return;
    case MatchAction::kBareJson:
      waiting_ = Output::kBareJson;
      [[fallthrough]];
    case MatchAction::kFence:
      enter(OutputState::kJson);
      blank_given_ = false;
      break;
    case MatchAction::kFenceEnd:
      enter(OutputState::kAfterJson);
      return;
    default:
      act_in_call(pattern.action, sink);
      break;
  }
  if (waiting_ != Output::kNone && !waits) put_out(sink);
}

void OutputMachine::act_in_call(MatchAction action, OutputSink& sink) {
  switch (action) {
    case MatchAction::kBeginName:
      name_.clear();
      enter(OutputState::kName);
      return;
    case MatchAction::kNameEnd:
      enter(OutputState::kArguments);
      waiting_ = Output::kBegunCall;
      return;
    case MatchAction::kInvokeHead:
    case MatchAction::kParamHead:
    case MatchAction::kBeginParam:
      begin_head(action);
      return;
    case MatchAction::kParamNameEnd:
      enter(OutputState::kParamType);
      waiting_ = Output::kColon;
      return;
    case MatchAction::kStringValue:
    case MatchAction::kRawValue:
      is_string_ = action == MatchAction::kStringValue;
      enter(OutputState::kValue);
      if (is_string_) waiting_ = Output::kQuote;
      return;
    case MatchAction::kOpener:
      end_head(sink);
      if (!in_invoke_) end_value(sink);
      return;
    case MatchAction::kCloser:
      if (state_ == OutputState::kParamHead) {
        close_head(sink);
      } else if (state_ == OutputState::kValue) {
        end_value(sink);
      } else {
        enter(OutputState::kCalls);
        waiting_ = Output::kCloseArguments;
      }
      return;
    default:
      enter(OutputState::kClosed);
      return;
  }
}

void OutputMachine::put_out(OutputSink& sink) {
  switch (std::exchange(waiting_, Output::kNone)) {
    case Output::kNone:
      return;
    case Output::kBegunCall:
      begin_call(name_, sink);
      return;
    case Output::kBegunParam:
      sink.arguments(std::exchange(has_params_, true) ? ", " : "{");
      return;
    case Output::kColon:
      sink.arguments(": ");
      return;
    case Output::kQuote:
      sink.arguments("\"");
      return;
    case Output::kCloseArguments:
      sink.arguments(has_params_ ? "}" : "{}");
      return;
    case Output::kBareJson:
      sink.content(bare_json_, bare_logprobs_);
      return;
  }
}

void OutputMachine::begin_call(std::string_view name, OutputSink& sink) {
  has_params_ = false;
  head_named_ = true;
  ++calls_;
  sink.begin_call(name, {});
}

void OutputMachine::begin_head(MatchAction action) {
  if (!grammar_->is_safe) {
    enter(OutputState::kParamName);
    waiting_ = Output::kBegunParam;
    return;
  }
  enter(OutputState::kParamHead);
  in_invoke_ = action == MatchAction::kInvokeHead;
  head_ = TagHead(action == MatchAction::kBeginParam);
  head_at_ = from_;
  head_named_ = false;
}

// safe: the name of a parameter is complete.
void OutputMachine::begin_param(OutputSink& sink) {
  head_named_ = true;
  sink.arguments(std::exchange(has_params_, true) ? ", " : "{");
  scratch_.clear();
  api::put_json_string(scratch_, head_.name());
  sink.arguments(scratch_);
  sink.arguments(": ");
}

// safe: the head's `>`.
void OutputMachine::end_head(OutputSink& sink) {
  if (in_invoke_) {
    enter(head_named_ ? OutputState::kArguments : OutputState::kCalls);
    return;
  }
  enter(OutputState::kValue);
  drops_value_ = !head_named_;
  is_string_ = !head_.is_raw();
  if (is_string_ && !drops_value_) sink.arguments("\"");
}

// safe: a closing tag inside a head. The parameter is empty, the call over.
void OutputMachine::close_head(OutputSink& sink) {
  if (!in_invoke_) {
    end_head(sink);
    end_value(sink);
  } else {
    enter(OutputState::kCalls);
    if (head_named_) waiting_ = Output::kCloseArguments;
  }
}

void OutputMachine::end_value(OutputSink& sink) {
  enter(OutputState::kArguments);
  if (std::exchange(drops_value_, false)) return;
  if (is_string_) {
    waiting_ = Output::kQuote;
  } else if (grammar_->is_safe) {
    // What is no JSON would break the arguments of the whole call: it is text then.
    scratch_.clear();
    if (!api::JsonTree::parse(raw_)) api::put_json_string(scratch_, raw_);
    sink.arguments(scratch_.empty() ? raw_ : scratch_);
    raw_.clear();
  }
}

}  // namespace artery::codec::deepseek
