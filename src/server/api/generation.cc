#include "server/api/generation.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "server/api/errors.h"

namespace artery::server::api {
namespace {

constexpr int kClientClosed = 499;  // for the log only: nobody is there to read it

http::Headers stream_headers(const http::Headers& more) {
  http::Headers headers = {
      {"Content-Type", "text/event-stream; charset=utf-8"},
      {"Cache-Control", "no-cache"},
      {"X-Accel-Buffering", "no"}
  };
  headers.insert(headers.end(), more.begin(), more.end());
  return headers;
}

AnswerHead make_head(const Call& call, const Serving& serving, const GenerationInput& input) {
  const std::string_view usual = input.is_chat ? "chatcmpl-" : "cmpl-";
  return {
      std::string(input.id_prefix.empty() ? usual : input.id_prefix) + call.id,
      call.clock->unix_ms() / 1000,
      input.params.model,
      serving.system_fingerprint
  };
}

std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const GenerationInput& input) {
  if (input.make_writer) return input.make_writer(head);
  const GenerateParams& params = input.params;
  const OpenAiWish wish{
      input.is_chat,
      params.logprobs >= 0,
      params.include_usage,
      params.continuous_usage,
      params.timings
  };
  return make_openai_writer(std::move(head), wish);
}

// Letters and digits, not guessable: a client may keep calls of many answers in one conversation.
std::string new_call_id(codec::CallIdStyle style) {
  constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool is_nine = style == codec::CallIdStyle::kNine;
  std::string id = is_nine ? "" : "call_";
  constexpr std::size_t kLong = 24, kNine = 9, kPerDraw = 9;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < (is_nine ? kNine : kLong); ++i) {
    if (i % kPerDraw == 0) bits = system_random().next();
    id += kAlphabet[bits % kAlphabet.size()];
    bits /= kAlphabet.size();
  }
  return id;
}

}  // namespace

Generation::Generation(Call call, GenerationContext context, GenerationInput input)
    : call_(std::move(call)), context_(std::move(context)), input_(std::move(input)) {
  const GenerateParams& params = input_.params;
  const bool show_logprobs = params.logprobs >= 0;
  const DecodeOptions options{
      params.stops,
      params.include_stop,
      params.skip_special,
      params.sampling.min_tokens,
      params.logprobs
  };
  const MutexLock lock(mu_);
  writer_ = make_writer(make_head(call_, *context_.serving, input_), input_);
  streaming_ = params.stream;
  for (const TokenPrompt& prompt : input_.prompts) {
    subs_.emplace_back();
    subs_.back().awaits_prompt_logprobs = params.echo && show_logprobs;
    for (int i = 0; i < params.n; ++i) {
      choices_.push_back(
          {ChoiceDecoder(*context_.serving->tokenizer, options, output_wish(prompt)),
           {},
           {},
           {},
           {},
           {}}
      );
      Choice& choice = choices_.back();
      choice.whole.index = static_cast<int>(choices_.size()) - 1;
      if (params.echo && !show_logprobs)
        choice.decoder.push_prompt(prompt.text, prompt.ids, nullptr);
    }
  }
}

OutputWish Generation::output_wish(const TokenPrompt& prompt) const {
  OutputWish wish;
  const auto& format = context_.serving->output_format;
  if (!input_.is_chat || (format == nullptr && !input_.parser)) return wish;
  wish.parser =
      input_.parser ? *input_.parser : format->start(prompt.text, input_.tools, input_.continued);
  wish.parallel_calls = input_.parallel_calls;
  wish.include_reasoning = input_.include_reasoning;
  const auto style = input_.parser ? codec::CallIdStyle::kLong : format->call_id_style();
  wish.new_call_id = [style] { return new_call_id(style); };
  return wish;
}

engine::Request Generation::engine_request(const TokenPrompt& prompt) const {
  const GenerateParams& params = input_.params;
  engine::Request request;
  request.external_id = call_.id;
  request.salt = params.cache_salt;
  request.guarantee = params.cache_asked.has_value();
  request.ttl_class = params.cache_asked.value_or(context_.cache_ttl.value_or(params.cache_seen));
  request.priority = params.priority;
  if (call_.holder) {
    request.tenant = call_.holder->key.tenant;
    if (!params.has_priority) request.priority = call_.holder->key.priority;
  }
  request.prompt = prompt.ids;
  request.n = params.n;
  request.max_tokens = params.max_tokens;
  request.sampling = params.sampling;
  request.sampling.logprobs = params.logprobs;
  request.sampling.stop_ids = params.stop_token_ids;
  if (!params.ignore_eos) {
    auto& stop_ids = request.sampling.stop_ids;
    const auto& ends = context_.serving->tokenizer->vocab().end_of_generation;
    stop_ids.insert(stop_ids.end(), ends.begin(), ends.end());
    stop_ids.insert(stop_ids.end(), input_.end_ids.begin(), input_.end_ids.end());
  }
  if (params.echo && params.logprobs >= 0) request.prompt_logprobs = params.logprobs;
  // An answer of no tokens is a question about the prompt; the engine takes it in this form only.
  if (params.max_tokens == 0) request.prompt_logprobs = std::max(request.prompt_logprobs, 0);
  return request;
}

void Waker::wake() {
  if (scheduled_.exchange(true)) return;
  workers_->post([self = shared_from_this()] {
    // Before the work, so that an event that comes during it is not lost.
    self->scheduled_.store(false);
    if (const auto generation = self->generation_.lock()) generation->pump();
  });
}

Result<> Generation::check_priority() const {
  if (!call_.holder || !input_.params.has_priority) return {};
  const ApiKey& key = call_.holder->key;
  if (input_.params.priority >= key.priority) return {};
  return fail_field(
      "priority",
      "priority {} is more urgent than {}, the most urgent one of the key \"{}\"; lower numbers "
      "run first",
      input_.params.priority,
      key.priority,
      key.name
  );
}

Result<> Generation::submit_all(const std::shared_ptr<Waker>& waker) {
  TRY(check_priority());
  // More than the queue ever holds would be refused as overloaded for ever.
  const int queue = context_.serving->engine->status().inbox_max;
  if (queue > 0 && subs_.size() > static_cast<std::size_t>(queue)) {
    return fail_field(
        "prompt",
        "prompt has {} entries, more than the queue of {} requests ever holds; send them in parts "
        "or raise --max-queued-requests",
        subs_.size(),
        queue
    );
  }
  for (std::size_t i = 0; i < subs_.size(); ++i) {
    auto events = std::make_shared<engine::EventStream>();
    events->set_notify([waker] { waker->wake(); });
    auto id = context_.serving->engine->submit(engine_request(input_.prompts[i]), events);
    if (!id) {
      Error error = id.error();
      if (error.field.empty() && error.code == Code::kContextLength) {
        error.field = input_.is_chat ? "messages" : "prompt";
      }
      return tl::unexpected<Error>(std::move(error));
    }
    subs_[i].id = *id;
    subs_[i].events = std::move(events);
  }
  return {};
}

void Generation::cancel_all() {
  for (const Sub& sub : subs_) {
    if (sub.events) context_.serving->engine->cancel(sub.id);
  }
}

void Generation::refuse(const Error& error) {
  ApiError shown = to_api_error(error, call_.id);
  if (shown.status == 500) log_error("request id={} failed: {}", call_.id, error.message);
  if (error.code == Code::kOverloaded) {
    shown.retry_after_s = context_.backlog->retry_after_s(
        context_.serving->engine->status().waiting, call_.clock->monotonic_ns()
    );
    shown.message += fmt::format("; try again in {} s", shown.retry_after_s);
  }
  reply_error(call_, shown);
}

bool Generation::start(std::function<void()> on_done) {
  const auto waker = std::make_shared<Waker>(context_.workers, weak_from_this());
  {
    const MutexLock lock(mu_);
    const auto submitted = submit_all(waker);
    if (!submitted) {
      done_ = true;
      cancel_all();
      refuse(submitted.error());
      return false;
    }
    std::int64_t prompt_tokens = 0;
    for (const TokenPrompt& prompt : input_.prompts) {
      prompt_tokens += static_cast<std::int64_t>(prompt.ids.size());
    }
    if (call_.lease) call_.lease->use(prompt_tokens, 0);
    context_.metrics->on_admitted(input_.params.max_tokens, input_.params.n);
    on_done_ = std::move(on_done);
    if (streaming_) {
      call_.writer->start_stream(
          200, stream_headers(call_.headers), {writer_->heartbeat(), context_.sse_comment_s}
      );
    }
  }
  call_.writer->on_drained([waker] { waker->wake(); });
  call_.writer->on_gone([waker] { waker->wake(); });
  waker->wake();
  return true;
}

void Generation::pump() {
  const MutexLock lock(mu_);
  if (done_) return;
  if (!client_gone_ && call_.writer->gone()) {
    client_gone_ = true;
    cancel_all();
  }
  // A client that reads slowly leaves its tokens with the engine, where they are merged.
  if (!client_gone_ && streaming_ && !call_.writer->writable()) return;
  for (std::size_t i = 0; i < subs_.size(); ++i) {
    while (auto event = subs_[i].events->poll()) {
      take_event(i, *event);
      if (done_) return;
    }
  }
  emit_ready();
  if (!out_.empty()) {
    call_.writer->write(out_);
    out_.clear();
  }
  const bool all_ended = std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) {
    return choice.ended;
  });
  if (all_ended) complete();
}

bool Generation::take_prompt_logprobs(std::size_t index, const engine::Event& event) {
  Sub& sub = subs_[index];
  const TokenPrompt& prompt = input_.prompts[index];
  if (event.prompt_logprobs.empty() && prompt.ids.size() > 1 && !event.finish) {
    sub.held.push_back(event);
    return false;
  }
  sub.awaits_prompt_logprobs = false;
  const auto n = static_cast<std::size_t>(input_.params.n);
  for (std::size_t i = index * n; i < (index + 1) * n; ++i) {
    choices_[i].decoder.push_prompt(prompt.text, prompt.ids, &event.prompt_logprobs);
  }
  for (const engine::Event& earlier : std::exchange(sub.held, {})) take_event(index, earlier);
  return true;
}

void Generation::take_event(std::size_t index, const engine::Event& event) {
  if (subs_[index].awaits_prompt_logprobs && !take_prompt_logprobs(index, event)) return;
  const std::size_t at =
      index * static_cast<std::size_t>(input_.params.n) + static_cast<std::size_t>(event.choice);
  Choice& choice = choices_[at];
  if (event.finish) {
    subs_[index].cached_tokens = event.finish->usage.cached_tokens;
  } else if (!event.token_ids.empty()) {
    subs_[index].cached_tokens = event.cached_tokens;
  }
  take_tokens(choice, event);
  if (choice.decoder.stopped() && !choice.cut) {
    choice.cut = true;
    if (!event.finish) context_.serving->engine->finish_choice(subs_[index].id, event.choice);
  }
  if (event.finish) take_finish(choice, *event.finish);
}

void Generation::take_tokens(Choice& choice, const engine::Event& event) {
  if (event.token_ids.empty() || choice.cut) return;
  const std::int64_t now = call_.clock->monotonic_ns();
  if (!first_token_seen_) {
    first_token_seen_ = true;
    context_.metrics->on_first_token(call_.seconds());
  }
  if (choice.last_token_ns != 0) {
    context_.metrics->on_tokens(
        static_cast<double>(now - choice.last_token_ns) * 1e-9,
        static_cast<std::int64_t>(event.token_ids.size())
    );
  }
  choice.last_token_ns = now;
  if (call_.lease) call_.lease->use(0, static_cast<std::int64_t>(event.token_ids.size()));
  for (std::size_t i = 0; i < event.token_ids.size() && !choice.decoder.stopped(); ++i) {
    const bool has_logprobs = i < event.logprobs.size();
    choice.decoder.push(event.token_ids[i], has_logprobs ? &event.logprobs[i] : nullptr);
  }
}

void Generation::take_finish(Choice& choice, const engine::Finish& finish) {
  choice.finish = finish;
  if (choice.cut || client_gone_) return;
  switch (finish.reason) {
    case engine::FinishReason::kStop:
    case engine::FinishReason::kLength:
      choice.decoder.finish(finish.stop_token);
      choice.cut = choice.decoder.stopped();
      return;
    case engine::FinishReason::kCancelled:
      fail({Code::kUnavailable, "the server cancelled the request; send it again", {}});
      return;
    case engine::FinishReason::kDeadline:
      fail({Code::kDeadlineExceeded, "the request's deadline passed", {}});
      return;
    case engine::FinishReason::kError:
      fail({Code::kInternal, finish.message, {}});
      return;
  }
}

Ending Generation::ending_of(const Choice& choice) const {
  Ending ending;
  const bool has_calls = choice.decoder.has_calls();
  if (choice.decoder.stopped()) {
    ending.reason = has_calls ? "tool_calls" : "stop";
    ending.stop_string = choice.decoder.stop_string();
    return ending;
  }
  const bool is_stop = choice.finish->reason == engine::FinishReason::kStop;
  ending.reason = has_calls && is_stop ? "tool_calls" : engine::name(choice.finish->reason);
  const auto& asked = input_.params.stop_token_ids;
  const TokenId token = choice.finish->stop_token;
  if (token >= 0 && std::find(asked.begin(), asked.end(), token) != asked.end()) {
    ending.stop_token = token;
  }
  return ending;
}

void Generation::emit_ready() {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (choice.ended) continue;
    for (Delta& delta : choice.decoder.take()) {
      emit({static_cast<int>(i), std::move(delta), std::nullopt});
    }
    if (!choice.finish) continue;
    choice.ended = true;
    emit({static_cast<int>(i), {}, ending_of(choice)});
  }
}

void Generation::emit(ChoicePart part) {
  Choice& choice = choices_[static_cast<std::size_t>(part.index)];
  if (client_gone_) return;
  if (!streaming_) {
    choice.whole.delta.append(std::move(part.delta));
    if (part.ending) choice.whole.ending = std::move(part.ending);
    return;
  }
  const bool is_last =
      part.ending &&
      std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.ended; });
  std::optional<Progress> now;
  if (is_last || writer_->shows_progress()) now = progress();
  out_ += writer_->part(part, now ? &*now : nullptr, is_last);
}

Progress Generation::progress() const { return {usage(), timings()}; }

AnswerUsage Generation::usage() const {
  AnswerUsage total;
  std::int64_t cached = 0, until = std::numeric_limits<std::int64_t>::max();
  bool known = true;
  for (std::size_t i = 0; i < subs_.size(); ++i) {
    total.prompt_tokens += static_cast<std::int64_t>(input_.prompts[i].ids.size());
    known = known && subs_[i].cached_tokens.has_value();
    cached += subs_[i].cached_tokens.value_or(0);
  }
  for (const Choice& choice : choices_) {
    total.completion_tokens += choice.decoder.token_count();
    if (choice.finish) until = std::min(until, choice.finish->usage.guaranteed_until_s);
  }
  if (!known) return total;
  total.cached_tokens = cached;
  if (input_.params.cache_asked) total.promise = {*input_.params.cache_asked, until};
  return total;
}

AnswerTimings Generation::timings() const {
  AnswerTimings out;
  for (const Choice& choice : choices_) {
    if (!choice.finish) continue;
    const engine::Timings& one = choice.finish->usage.timings;
    out.parts.queue_s = std::max(out.parts.queue_s, one.queue_s);
    out.parts.cache_lookup_s = std::max(out.parts.cache_lookup_s, one.cache_lookup_s);
    out.parts.load_s = std::max(out.parts.load_s, one.load_s);
    out.parts.prefill_s = std::max(out.parts.prefill_s, one.prefill_s);
    out.parts.decode_s = std::max(out.parts.decode_s, one.decode_s);
  }
  // One of a prompt's choices says what the prompt found.
  const auto n = static_cast<std::size_t>(input_.params.n);
  for (std::size_t i = 0; i < choices_.size(); i += n) {
    if (choices_[i].finish) out.disk_tokens += choices_[i].finish->usage.disk_tokens;
  }
  out.miss = miss();
  const AnswerUsage used = usage();
  out.prompt_tokens_computed = used.prompt_tokens - used.cached_tokens.value_or(0);
  const auto rate = [](std::int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  out.prefill_tokens_per_s = rate(out.prompt_tokens_computed, out.parts.prefill_s);
  // Prefill ends with a choice's first token, so decode made the others.
  std::int64_t decoded = 0;
  for (const Choice& choice : choices_) {
    decoded += std::max<std::int64_t>(0, choice.decoder.token_count() - 1);
  }
  out.decode_tokens_per_s = rate(decoded, out.parts.decode_s);
  return out;
}

engine::MissReason Generation::miss() const {
  for (const Choice& choice : choices_) {
    if (choice.finish && choice.finish->usage.miss != engine::MissReason::kNone) {
      return choice.finish->usage.miss;
    }
  }
  return engine::MissReason::kNone;
}

std::string_view Generation::finish_name() const {
  if (client_gone_) return "abort";
  const Choice& first = choices_.front();
  return first.decoder.stopped() ? "stop" : engine::name(first.finish->reason);
}

void Generation::complete() {
  const std::string_view finish = finish_name();
  if (call_.lease) call_.lease->release();
  if (client_gone_) {
    // Reaches a client that only closed its sending side; others are not there any more.
    const ApiError error{
        400,
        "invalid_request_error",
        "client_closed_request",
        {},
        "the client closed its side of the connection before the answer was ready",
        0
    };
    count(kClientClosed, finish);
    if (streaming_) {
      call_.writer->write(writer_->failure(error));
      call_.writer->finish();
    } else {
      call_.writer->send(error_response(error, writer_->error_shape()));
    }
    end(kClientClosed, finish);
    return;
  }
  count(200, finish);
  if (streaming_) {
    out_ += writer_->end(progress());
    call_.writer->write(out_);
    call_.writer->finish();
  } else {
    std::vector<ChoicePart> parts;
    for (Choice& choice : choices_) parts.push_back(std::move(choice.whole));
    http::Response response{
        200, {{"Content-Type", "application/json"}}, writer_->whole(parts, progress())
    };
    response.headers.insert(response.headers.end(), call_.headers.begin(), call_.headers.end());
    call_.writer->send(std::move(response));
  }
  end(200, finish);
}

void Generation::fail(const Error& error) {
  if (done_) return;
  cancel_all();
  if (call_.lease) call_.lease->release();
  const ApiError shown = to_api_error(error, call_.id);
  if (shown.status == 500) log_error("request id={} failed: {}", call_.id, error.message);
  count(shown.status, "error");
  if (streaming_) {
    out_ += writer_->failure(shown);
    call_.writer->write(out_);
    call_.writer->finish();
  } else {
    http::Response response = error_response(shown, writer_->error_shape());
    response.headers.insert(response.headers.end(), call_.headers.begin(), call_.headers.end());
    call_.writer->send(std::move(response));
  }
  end(shown.status, "error");
}

void Generation::abort(const Error& error) {
  const MutexLock lock(mu_);
  fail(error);
}

// Before the last byte leaves: who has the answer finds it counted.
void Generation::count(int status, std::string_view finish) {
  if (call_.statuses) call_.statuses->count(status);
  context_.backlog->on_end(call_.clock->monotonic_ns());
  const AnswerUsage used = usage();
  context_.metrics->on_request(
      {call_.seconds(), timings().parts, used.prompt_tokens, used.completion_tokens, finish}
  );
}

void Generation::end(int status, std::string_view finish) {
  done_ = true;
  if (call_.log) log_line(status, finish);
  if (on_done_) on_done_();
}

void Generation::log_line(int status, std::string_view finish) {
  const AnswerUsage used = usage();
  const AnswerTimings measured = timings();
  log_info(
      "request id={} key={} path={} status={} prompt_tokens={} cached_tokens={} disk_tokens={} "
      "generated_tokens={} "
      "queue_s={:.4f} load_s={:.4f} prefill_s={:.4f} decode_s={:.4f} prefill_tok_s={:.1f} "
      "decode_tok_s={:.1f} "
      "total_s={:.4f} finish={} miss={}",
      call_.id,
      call_.holder ? call_.holder->key.name : "-",
      call_.request->path,
      status,
      used.prompt_tokens,
      used.cached_tokens.value_or(0),
      measured.disk_tokens,
      used.completion_tokens,
      measured.parts.queue_s,
      measured.parts.load_s,
      measured.parts.prefill_s,
      measured.parts.decode_s,
      measured.prefill_tokens_per_s,
      measured.decode_tokens_per_s,
      call_.seconds(),
      call_.writer->stalled() ? "stalled" : finish,
      engine::name(measured.miss)
  );
}

}  // namespace artery::server::api
