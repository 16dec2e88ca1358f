#include "load.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/scheduler.h"

namespace artery::exactness {
namespace {

using engine::EventStream;

constexpr auto kPatience = std::chrono::minutes(5);

std::int64_t pages_of(const engine::Request& request) {
  return engine::pages_for(static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens);
}

struct Asked {
  std::size_t question = 0;
  int cancel_after = -1;
  RequestId id;
  std::shared_ptr<EventStream> events = std::make_shared<EventStream>();
  Trace trace;
  bool cancelled = false;
};

class Asking {
 public:
  Asking(Subject& subject, engine::Engine& engine, Outcome& out)
      : subject_(subject), engine_(engine), out_(out) {}

  void ask(const Member& member) {
    engine::Request request = subject_.questions()[member.question];
    request.priority = member.priority;
    Asked asked{
        member.question,
        member.cancel_after,
        {},
        std::make_shared<EventStream>(),
        Trace(request.n),
        false
    };
    const auto id = engine_.submit(std::move(request), asked.events);
    if (!id) return fail_with(asked, id.error().message);
    asked.id = *id;
    if (asked.cancel_after == 0) cancel(asked);
    asked_.push_back(std::move(asked));
  }

  void listen() {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    for (Asked& asked : asked_) {
      while (!asked.trace.finished()) {
        poll_all();
        if (asked.trace.finished()) break;
        if (const auto event = asked.events->wait(2)) absorb(asked, *event);
        if (std::chrono::steady_clock::now() > until) {
          return fail_with(asked, "no end within five minutes");
        }
      }
    }
  }

  void compare() {
    for (const Asked& asked : asked_) {
      for (const ChoiceTrace& choice : asked.trace.choices) {
        if (choice.finish && &choice == asked.trace.choices.data()) {
          out_.cached_tokens += choice.finish->usage.cached_tokens;
        }
      }
      const std::string found =
          difference(asked.trace, subject_.reference(asked.question), asked.cancelled);
      if (!found.empty()) fail_with(asked, found);
    }
  }

 private:
  void poll_all() {
    for (Asked& asked : asked_) {
      while (const auto event = asked.events->poll()) absorb(asked, *event);
    }
  }
  void absorb(Asked& asked, const engine::Event& event) {
    asked.trace.absorb(event);
    const auto tokens = static_cast<int>(asked.trace.choices[0].tokens.size());
    if (asked.cancel_after >= 0 && tokens >= asked.cancel_after) cancel(asked);
  }
  void cancel(Asked& asked) {
    if (asked.cancelled) return;
    asked.cancelled = true;
    engine_.cancel(asked.id);
  }
  void fail_with(const Asked& asked, const std::string& text) {
    out_.differences.push_back(fmt::format(
        "question {} ({} tokens): {}",
        asked.question,
        subject_.questions()[asked.question].prompt.size(),
        text
    ));
  }

  Subject& subject_;
  engine::Engine& engine_;
  Outcome& out_;
  std::vector<Asked> asked_;
};

void answer_before(engine::Engine& engine, const std::vector<std::vector<TokenId>>& prompts) {
  for (const auto& prompt : prompts) {
    engine::Request request;
    request.prompt = prompt;
    request.max_tokens = 1;
    auto events = std::make_shared<EventStream>();
    if (!engine.submit(request, events)) continue;
    Trace trace(1);
    while (!trace.finished()) {
      if (const auto event = events->wait(1000)) trace.absorb(*event);
    }
  }
}

void check_pages(engine::Engine& engine, Outcome& out) {
  if (!engine.drain(60)) out.differences.push_back("requests remain after the last answer");
  out.status = engine.status();
  if (out.status.pages_in_use != 0) {
    out.differences.push_back(fmt::format("{} pages remain in use", out.status.pages_in_use));
  }
  if (!engine.reset_prefix_cache()) {
    out.differences.push_back("pages remain after the cache was emptied");
  }
}

}  // namespace

std::int64_t pages_of_longest(const Subject& subject, const Load& load) {
  std::int64_t most = 1;
  for (const Member& member : load.members) {
    most = std::max(most, pages_of(subject.questions()[member.question]));
  }
  for (const auto& prompt : load.before) {
    most = std::max(most, engine::pages_for(static_cast<std::int64_t>(prompt.size()) + 1));
  }
  return most;
}

std::int64_t pages_of_all(const Subject& subject, const Load& load) {
  std::int64_t sum = 0;
  for (const Member& member : load.members) {
    const engine::Request& request = subject.questions()[member.question];
    sum += pages_of(request) * request.n + 2;
  }
  for (const auto& prompt : load.before) {
    sum += engine::pages_for(static_cast<std::int64_t>(prompt.size())) + 1;
  }
  return sum;
}

Outcome run(Subject& subject, const Load& load) {
  Outcome out;
  // The references first: they need the backend for themselves.
  for (const Member& member : load.members) subject.reference(member.question);
  const std::int64_t pages =
      load.setting.pages > 0 ? load.setting.pages : pages_of_all(subject, load);
  const auto engine = subject.start(load.setting, pages);
  answer_before(*engine, load.before);
  if (load.settle) load.settle();
  if (load.reset && !engine->reset_prefix_cache()) {
    out.differences.push_back("pages remain after the first cache was emptied");
  }
  Asking asking(subject, *engine, out);
  subject.gate().close();
  for (std::size_t i = 0; i < load.members.size(); ++i) {
    if (i > 0 && i + load.late == load.members.size()) {
      subject.gate().let(2);
      subject.gate().wait_for_step();
    }
    asking.ask(load.members[i]);
  }
  subject.gate().open();
  asking.listen();
  asking.compare();
  check_pages(*engine, out);
  return out;
}

}  // namespace artery::exactness
