#include "codec/deepseek/output_machine.h"

#include <algorithm>
#include <utility>

namespace artery::codec::deepseek {

OutputMachine::OutputMachine(std::shared_ptr<const OutputGrammar> grammar, bool keeps_reasoning)
    : grammar_(std::move(grammar)),
      state_(grammar_->start),
      drops_newlines_(grammar_->drops_leading_newlines),
      keeps_reasoning_(keeps_reasoning) {
  enter(state_);
}

void OutputMachine::enter(OutputState state) {
  state_ = state;
  progress_.assign(grammar_->of(state).patterns.size(), PatternProgress());
  idle_ = true;
}

void OutputMachine::piece(
    std::string_view text, ByteSource source, PieceLogprobs logprobs, api::OutputSink& sink
) {
  if (stopped_) return;
  if (text.empty()) {
    empty_piece(std::move(logprobs), sink);
    return;
  }
  if (held_.empty()) {
    buffer_ = text;
    base_ = total_;
  } else {
    held_ += text;
    buffer_ = held_;
  }
  piece_begin_ = total_;
  total_ += text.size();
  pieces_.push_back({piece_begin_, total_, std::move(logprobs)});
  if (source == ByteSource::kAdded) {
    scan_added(sink);
  } else {
    scan(source == ByteSource::kText, sink);
  }
  if (stopped_) return;
  release(total_ - held(), false, sink);
  keep_rest();
}

// It is a delta of its own, but not right behind a match; at the very start it waits for what
// comes.
void OutputMachine::empty_piece(PieceLogprobs logprobs, api::OutputSink& sink) {
  if (first_ == pieces_.size() && edge_ != Edge::kStart) {
    if (edge_ == Edge::kText) give({total_, total_, std::move(logprobs)}, total_, total_, sink);
    return;
  }
  pieces_.push_back({total_, total_, std::move(logprobs)});
}

inline bool OutputMachine::step_all(std::uint64_t at, bool is_spelling, api::OutputSink& sink) {
  const std::vector<Pattern>& patterns = grammar_->of(state_).patterns;
  const char byte = buffer_[at - base_];
  const std::size_t count = patterns.size();
  const Pattern* const first = patterns.data();
  PatternProgress* const progress = progress_.data();
  std::size_t busy = 0, one = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const StepResult result = step(first[i], progress[i], byte, is_spelling);
    if (result != StepResult::kNothing) {
      match(first[i], result, at + 1 - progress[i].held(), at + 1, sink);
      return true;
    }
    if (!progress[i].idle()) {
      ++busy;
      one = i;
    }
  }
  idle_ = busy == 0;
  alone_ = busy == 1 && progress[one].matched == first[one].alone_from ? &first[one] : nullptr;
  return false;
}

// Takes the rest of the pattern that alone has begun in one go. True: a match, which ends at `at`.
bool OutputMachine::run_ahead(std::uint64_t& at, bool is_spelling, api::OutputSink& sink) {
  const Pattern& pattern = *std::exchange(alone_, nullptr);
  const std::size_t matched = pattern.alone_from;
  const std::string_view rest = std::string_view(pattern.bytes).substr(matched);
  const bool spells = matched < pattern.special_end;
  if (rest.empty() || (spells && !is_spelling) || total_ - at < rest.size() ||
      bytes(at, at + rest.size()) != rest) {
    return false;
  }
  at += rest.size();
  PatternProgress& progress =
      progress_[static_cast<std::size_t>(&pattern - grammar_->of(state_).patterns.data())];
  progress.matched = pattern.bytes.size();
  if (pattern.opens_block) return false;
  match(pattern, StepResult::kMatch, at - progress.held(), at, sink);
  return true;
}

void OutputMachine::scan(bool is_spelling, api::OutputSink& sink) {
  std::uint64_t at = piece_begin_;
  while (at < total_ && !stopped_) {
    if (drops_newlines_ && drop_newline(at, sink)) {
      ++at;
      continue;
    }
    const bool in_head = state_ == OutputState::kParamHead;
    if (idle_ && !in_head) {
      at = skip_idle(at);
      if (at == total_) return;
    }
    // Until something matches or nothing more can; a head is read byte by byte.
    bool matched = false;
    do {
      matched = step_all(at, is_spelling, sink);
      ++at;
      if (alone_ != nullptr && !matched) matched = run_ahead(at, is_spelling, sink);
    } while (!matched && !idle_ && !in_head && at < total_);
    if (in_head && !matched) at = read_head(at, sink);
  }
}

// An added token ends whatever began before it, but for the tags it belongs to.
void OutputMachine::scan_added(api::OutputSink& sink) {
  drops_newlines_ = false;
  const std::string_view token = bytes(piece_begin_, total_);
  const std::vector<Pattern>& patterns = grammar_->of(state_).patterns;
  idle_ = true;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    PatternProgress& progress = progress_[i];
    const StepResult result = step_added(patterns[i], progress, token);
    if (result != StepResult::kNothing) {
      match(patterns[i], result, total_ - progress.held(), total_, sink);
      return;
    }
    idle_ = idle_ && progress.idle();
  }
  if (state_ == OutputState::kParamHead) read_head(total_, sink);
}

std::uint64_t OutputMachine::skip_idle(std::uint64_t at) const {
  const std::array<bool, 256>& begins = grammar_->of(state_).begins;
  const char* const first = buffer_.data() + (at - base_);
  const char* const last = buffer_.data() + (total_ - base_);
  const char* const found =
      std::find_if(first, last, [&](char c) { return begins[static_cast<unsigned char>(c)]; });
  return at + static_cast<std::uint64_t>(found - first);
}

// Newlines at the beginning go until the first other character. One that is a stop sequence stops.
bool OutputMachine::drop_newline(std::uint64_t at, api::OutputSink& sink) {
  if (bytes(at, at + 1)[0] != '\n') {
    drops_newlines_ = false;
    return false;
  }
  for (const Pattern& pattern : grammar_->of(state_).patterns) {
    if (pattern.action != MatchAction::kStop || pattern.bytes != "\n") continue;
    match(pattern, StepResult::kMatch, at, at + 1, sink);
    return true;
  }
  consume(at, at + 1, sink);
  return true;
}

// Gives the head what came up to `at` and belongs to no tag begun. Where to go on.
std::uint64_t OutputMachine::read_head(std::uint64_t at, api::OutputSink& sink) {
  const std::uint64_t until = at - held();
  while (head_at_ < until) {
    const TagHead::Step step = head_.push(buffer_[head_at_ - base_]);
    ++head_at_;
    if (step == TagHead::Step::kNamed) {
      in_invoke_ ? begin_call(head_.name(), sink) : begin_param(sink);
    } else if (step == TagHead::Step::kEnd) {
      const bool was_named = head_.has_name() && !head_named_;
      if (was_named) in_invoke_ ? begin_call(head_.name(), sink) : begin_param(sink);
      consume(head_at_, head_at_, sink);
      end_head(sink);
      return head_at_;
    }
  }
  return at;
}

void OutputMachine::match(
    const Pattern& pattern,
    StepResult result,
    std::uint64_t begin,
    std::uint64_t end,
    api::OutputSink& sink
) {
  if (pattern.action == MatchAction::kBareJson) {
    if (waiting_ != Output::kNone) put_out(sink);
    bare_json_ = bytes(begin, end);
    const std::span<const api::TokenLogprob> logprobs = logprobs_of(pieces_.back(), begin, end);
    bare_logprobs_.assign(logprobs.begin(), logprobs.end());
  }
  const bool waits = begin >= piece_begin_ && end < total_;
  consume(begin, end, sink);
  act(pattern, result, waits, sink);
}

void OutputMachine::consume(std::uint64_t begin, std::uint64_t end, api::OutputSink& sink) {
  if (waiting_ != Output::kNone) put_out(sink);
  release(begin, true, sink);
  while (first_ < pieces_.size() && pieces_[first_].end <= end) ++first_;
  from_ = end;
  edge_ = Edge::kMatch;
}

std::uint64_t OutputMachine::held() const {
  std::uint64_t most = 0;
  if (!idle_) {
    for (const PatternProgress& progress : progress_) most = std::max(most, progress.held());
  }
  return most;
}

// Gives out the pieces that end by `until`; with `splits` also the beginning of the one behind.
void OutputMachine::release(std::uint64_t until, bool splits, api::OutputSink& sink) {
  if (waiting_ != Output::kNone && until > from_) put_out(sink);
  while (first_ < pieces_.size()) {
    const Piece& piece = pieces_[first_];
    if (piece.end > until) {
      if (splits && until > from_) {
        give(piece, from_, until, sink);
        from_ = until;
        edge_ = Edge::kText;
      }
      return;
    }
    if (piece.end == from_ && from_ == until && edge_ != Edge::kText) return;
    give(piece, from_, piece.end, sink);
    if (piece.end > from_) edge_ = Edge::kText;
    from_ = piece.end;
    ++first_;
  }
}

// Keeps the bytes that were not given out.
void OutputMachine::keep_rest() {
  if (first_ == pieces_.size()) {
    pieces_.clear();
    first_ = 0;
    held_.clear();
    return;
  }
  if (held_.empty()) {
    held_ = bytes(from_, total_);
    base_ = from_;
  } else if (from_ - base_ > held_.size() / 2) {
    held_.erase(0, from_ - base_);
    base_ = from_;
  }
  if (first_ > pieces_.size() / 2) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void OutputMachine::end(api::OutputSink& sink) {
  if (stopped_) return;
  buffer_ = held_;
  // safe: a block cut off before its name is complete is a block.
  for (std::size_t i = 0; i < progress_.size(); ++i) {
    const Pattern& pattern = grammar_->of(state_).patterns[i];
    if (!may_open_block(pattern, progress_[i])) continue;
    consume(total_ - progress_[i].held(), total_, sink);
    enter(OutputState::kCalls);
    break;
  }
  release(total_, false, sink);
  if (waiting_ != Output::kNone) put_out(sink);
  if (!raw_.empty()) sink.arguments(raw_);
  raw_.clear();
}

}  // namespace artery::codec::deepseek
