#pragma once
// The state machine of the output side: pieces of text in, deltas out, by the rules R1 to R5 of
// ../shared/golden/codec/README-outputs.md. A piece is a text chunk, a run of ordinary tokens or
// one added token; a delta never spans two. A copy is a snapshot. Linear in the text. One thread at
// a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/api/output_sink.h"
#include "codec/deepseek/output_grammar.h"
#include "codec/deepseek/tag_head.h"

namespace artery::codec::deepseek {

// Log probabilities of a piece. `begins`: where the bytes of each token begin, counted from the
// piece's first byte; empty: not known.
struct PieceLogprobs {
  std::vector<api::TokenLogprob> entries;
  std::vector<std::size_t> begins;
};

class OutputMachine {
 public:
  explicit OutputMachine(std::shared_ptr<const OutputGrammar> grammar, bool keeps_reasoning);

  void piece(
      std::string_view text, ByteSource source, PieceLogprobs logprobs, api::OutputSink& sink
  );
  // No more pieces: what was withheld is text.
  void end(api::OutputSink& sink);

  // The stop sequence that ended the answer; nothing is read after it.
  const std::optional<std::string>& stopped() const { return stopped_; }
  // Calls whose name was complete.
  std::int64_t calls() const { return calls_; }
  // All of it, when the machine keeps it.
  const std::string& reasoning() const { return reasoning_; }

 private:
  struct Piece {
    std::uint64_t begin = 0, end = 0;
    PieceLogprobs logprobs;
  };
  // What is at the border between what was given out and what was not.
  enum class Edge : std::uint8_t { kStart, kMatch, kText };

  void empty_piece(PieceLogprobs logprobs, api::OutputSink& sink);
  void scan(bool is_spelling, api::OutputSink& sink);
  void scan_added(api::OutputSink& sink);
  std::uint64_t skip_idle(std::uint64_t at) const;
  bool drop_newline(std::uint64_t at, api::OutputSink& sink);
  bool step_all(std::uint64_t at, bool is_spelling, api::OutputSink& sink);
  bool run_ahead(std::uint64_t& at, bool is_spelling, api::OutputSink& sink);
  std::uint64_t read_head(std::uint64_t at, api::OutputSink& sink);
  void match(
      const Pattern& pattern,
      StepResult result,
      std::uint64_t begin,
      std::uint64_t end,
      api::OutputSink& sink
  );
  void consume(std::uint64_t begin, std::uint64_t end, api::OutputSink& sink);
  std::uint64_t held() const;
  void release(std::uint64_t until, bool splits, api::OutputSink& sink);
  void keep_rest();
  std::string_view bytes(std::uint64_t begin, std::uint64_t end) const {
    return buffer_.substr(begin - base_, end - begin);
  }
  // Empty pieces have no bytes to look at.
  std::string_view bytes_or_none(std::uint64_t begin, std::uint64_t end) const {
    return begin == end ? std::string_view() : bytes(begin, end);
  }
  void enter(OutputState state);

  // output_actions.cc
  void give(const Piece& piece, std::uint64_t begin, std::uint64_t end, api::OutputSink& sink);
  void give_blank(const Piece& piece, bool is_empty, api::OutputSink& sink);
  void give_value(std::string_view text, api::OutputSink& sink);
  std::span<const api::TokenLogprob> logprobs_of(
      const Piece& piece, std::uint64_t begin, std::uint64_t end
  );
  void act(const Pattern& pattern, StepResult result, bool waits, api::OutputSink& sink);
  void act_in_call(MatchAction action, api::OutputSink& sink);
  void put_out(api::OutputSink& sink);
  void begin_call(std::string_view name, api::OutputSink& sink);
  void begin_param(api::OutputSink& sink);
  void begin_head(MatchAction action);
  void end_head(api::OutputSink& sink);
  void close_head(api::OutputSink& sink);
  void end_value(api::OutputSink& sink);

  // What a match puts out; it may have to wait (R3).
  enum class Output : std::uint8_t {
    kNone,
    kBegunCall,
    kBegunParam,
    kColon,
    kQuote,
    kCloseArguments,
    kBareJson
  };

  std::shared_ptr<const OutputGrammar> grammar_;
  OutputState state_;
  std::vector<PatternProgress> progress_;
  bool idle_ = true;                // nothing of a pattern has matched
  const Pattern* alone_ = nullptr;  // only this one has, and may be taken in one go
  bool drops_newlines_;
  Edge edge_ = Edge::kStart;
  Output waiting_ = Output::kNone;
  std::string bare_json_;  // the bracket and its log probabilities
  std::vector<api::TokenLogprob> bare_logprobs_, some_logprobs_;
  bool is_string_ = false;   // the value
  bool has_params_ = false;  // of the call
  // Safe only: the value belongs to a parameter without a name; the blank for what stands outside
  // of JSON was given; the head is a call's, not a parameter's.
  bool drops_value_ = false, blank_given_ = false, in_invoke_ = false;
  bool head_named_ = false;  // safe: the head's name was given out
  bool keeps_reasoning_;
  TagHead head_;
  std::uint64_t head_at_ = 0;  // what the head has not read yet
  std::string name_, raw_, scratch_, reasoning_;
  std::optional<std::string> stopped_;
  std::int64_t calls_ = 0;

  // Positions count all bytes that came.
  std::uint64_t total_ = 0;        // end of what came
  std::uint64_t from_ = 0;         // what lies before was given out or belonged to a match
  std::uint64_t piece_begin_ = 0;  // of the piece being read
  std::string_view buffer_;        // bytes from base_ on: held_ or the piece itself
  std::uint64_t base_ = 0;
  std::string held_;
  std::vector<Piece> pieces_;  // from first_ on those with bytes not given out
  std::size_t first_ = 0;
};

}  // namespace artery::codec::deepseek
