#pragma once
// What the engine's tests share: an engine over a fake model, and one request's collected answer.

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace artery::engine {

struct ChoiceAnswer {
  std::vector<TokenId> tokens;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;
  std::optional<Finish> finish;
  bool in_order = true;  // every event began where the one before ended
};

struct Answer {
  std::map<int, ChoiceAnswer> choices;
  bool timed_out = false;
};

// Reads events until `choices` of them finished.
inline Answer collect(EventStream& events, int choices, int timeout_ms = 60'000) {
  Answer answer;
  int finished = 0;
  std::map<int, Position> next;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (finished < choices) {
    std::optional<Event> event = timeout_ms > 0 ? events.wait(1000) : events.poll();
    if (!event) {
      if (std::chrono::steady_clock::now() < until) continue;
      answer.timed_out = true;
      break;
    }
    ChoiceAnswer& choice = answer.choices[event->choice];
    if (!event->token_ids.empty()) {
      const auto it = next.find(event->choice);
      if (it != next.end() && it->second != event->first_position) choice.in_order = false;
      next[event->choice] = event->first_position + static_cast<Position>(event->token_ids.size());
    }
    choice.tokens.insert(choice.tokens.end(), event->token_ids.begin(), event->token_ids.end());
    std::move(event->logprobs.begin(), event->logprobs.end(), std::back_inserter(choice.logprobs));
    if (!event->prompt_logprobs.empty()) choice.prompt_logprobs = event->prompt_logprobs;
    if (event->finish) {
      choice.finish = event->finish;
      ++finished;
    }
  }
  return answer;
}

// Submits and waits; the request must be acceptable.
inline Answer ask(Engine& engine, Request request) {
  auto events = std::make_shared<EventStream>();
  const int n = request.n;
  const auto id = engine.submit(std::move(request), events);
  if (!id) {
    Answer refused;
    for (int choice = 0; choice < n; ++choice) {
      Finish finish;
      finish.reason = FinishReason::kError;
      finish.message = id.error().message;
      refused.choices[choice].finish = finish;
    }
    return refused;
  }
  return collect(*events, n);
}

}  // namespace artery::engine
