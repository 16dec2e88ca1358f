#pragma once
// One generation request in work: submits its prompts to the engine, turns events into deltas, and
// sends them as a stream or as one answer (the same deltas either way). Lives until the answer is
// out; cancels the engine's work when the client goes away. Events wake it through a worker.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/api/answer.h"
#include "server/api/answer_writer.h"
#include "server/api/backlog.h"
#include "server/api/call.h"
#include "server/api/choice_decoder.h"
#include "server/api/prompts.h"
#include "server/api/requests.h"
#include "server/api/workers.h"
#include "server/metrics.h"
#include "server/server.h"

namespace artery::server::api {

// What a generation needs from the server.
struct GenerationContext {
  std::shared_ptr<const Serving> serving;
  std::shared_ptr<Metrics> metrics;
  std::shared_ptr<Workers> workers;  // shared: events may still come while the server goes
  std::shared_ptr<Backlog> backlog;
  double sse_comment_s = 5;
  std::optional<kvstore::TtlClass> cache_ttl;  // Config's
};

struct GenerationInput {
  GenerateParams params;
  std::vector<TokenPrompt> prompts;  // at least one
  std::vector<TokenId> end_ids;      // end the answer beside the vocabulary's end tokens
  // A chat's output is read for reasoning and calls.
  bool is_chat = false;
  std::shared_ptr<const codec::DeclaredTools> tools;  // null: no calls in the answer
  // Reads the output of each choice, in place of the model's format.
  std::optional<codec::OutputParser> parser;
  bool parallel_calls = true;
  bool include_reasoning = true;
  // A chat that goes on from its last message: that one's text so far.
  std::optional<std::string> continued;
  std::string_view id_prefix;  // of the answer's id; empty: OpenAI's for chats and completions
  // Makes what writes the answer; null: as OpenAI's Chat Completions or Completions do.
  std::function<std::unique_ptr<AnswerWriter>(const AnswerHead& head)> make_writer;
};

class Generation;

// Asks a worker to look after a generation; what the engine and the connection hold. It never
// holds the generation itself, so that the engine's thread can never be the one to destroy it (and
// with it the engine). Any thread.
class Waker : public std::enable_shared_from_this<Waker> {
 public:
  Waker(std::shared_ptr<Workers> workers, std::weak_ptr<Generation> generation)
      : workers_(std::move(workers)), generation_(std::move(generation)) {}
  void wake();

 private:
  const std::shared_ptr<Workers> workers_;
  const std::weak_ptr<Generation> generation_;
  std::atomic<bool> scheduled_{false};
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(Call call, GenerationContext context, GenerationInput input);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Submits; for a stream the headers leave now. An error has been answered already and nothing is
  // left in the engine. `on_done` is called once, when the answer is out (not after an error here).
  bool start(std::function<void()> on_done);
  // Ends with an error (event): the server stops. Any thread.
  void abort(const Error& error);

 private:
  struct Choice {
    ChoiceDecoder decoder;
    bool cut = false;  // a stop string came and the engine was told
    std::optional<engine::Finish> finish;
    bool ended = false;  // its last part is out
    std::int64_t last_token_ns = 0;
    ChoicePart whole;  // not streaming: everything so far
  };
  struct Sub {  // one prompt: one engine request
    RequestId id{};
    std::shared_ptr<engine::EventStream> events;
    // Echo with log probabilities: the prompt's come before any delta, whichever choice's event
    // brings them; earlier events of other choices wait here.
    bool awaits_prompt_logprobs = false;
    std::optional<std::int64_t> cached_tokens;  // known from the first token on
    std::vector<engine::Event> held;
  };

  OutputWish output_wish(const TokenPrompt& prompt) const;
  engine::Request engine_request(const TokenPrompt& prompt) const;
  Result<> check_priority() const;
  Result<> submit_all(const std::shared_ptr<Waker>& waker) REQUIRES(mu_);
  void refuse(const Error& error);
  void cancel_all() REQUIRES(mu_);
  friend class Waker;
  void pump();
  void take_event(std::size_t sub, const engine::Event& event) REQUIRES(mu_);
  void take_tokens(Choice& choice, const engine::Event& event) REQUIRES(mu_);
  void take_finish(Choice& choice, const engine::Finish& finish) REQUIRES(mu_);
  bool take_prompt_logprobs(std::size_t sub, const engine::Event& event) REQUIRES(mu_);
  void emit_ready() REQUIRES(mu_);
  void emit(ChoicePart part) REQUIRES(mu_);
  void complete() REQUIRES(mu_);
  void fail(const Error& error) REQUIRES(mu_);
  void count(int status, std::string_view finish) REQUIRES(mu_);
  void end(int status, std::string_view finish) REQUIRES(mu_);

  Ending ending_of(const Choice& choice) const;
  AnswerUsage usage() const REQUIRES(mu_);
  AnswerTimings timings() const REQUIRES(mu_);
  engine::MissReason miss() const REQUIRES(mu_);
  Progress progress() const REQUIRES(mu_);
  std::string_view finish_name() const REQUIRES(mu_);
  void log_line(int status, std::string_view finish) REQUIRES(mu_);

  const Call call_;
  const GenerationContext context_;
  GenerationInput input_;

  Mutex mu_;
  std::unique_ptr<AnswerWriter> writer_ GUARDED_BY(mu_);
  std::vector<Sub> subs_ GUARDED_BY(mu_);
  std::vector<Choice> choices_ GUARDED_BY(mu_);
  std::string out_ GUARDED_BY(mu_);  // events of this pump, written together
  bool streaming_ GUARDED_BY(mu_) = false;
  bool client_gone_ GUARDED_BY(mu_) = false;
  bool first_token_seen_ GUARDED_BY(mu_) = false;
  bool done_ GUARDED_BY(mu_) = false;
  std::function<void()> on_done_ GUARDED_BY(mu_);
};

}  // namespace artery::server::api
