// Each thing that must not change an answer, alone: a failure names it. Every member of every
// batch is compared with the answer computed by itself, tokens and log probabilities bit for bit.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "load.h"
#include "subjects.h"

namespace artery::exactness {
namespace {

class Axis : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto found = find_subject(GetParam());
    if (!found) {
      GTEST_SKIP() << found.error().message;
    }
    subject_ = *found;
  }

  bool small() const { return GetParam() == kSmolLM2; }  // few questions, because each is dear
  std::size_t question_count() const { return small() ? 7 : subject_->questions().size(); }

  // `count` members over the questions in turn.
  Load batch(std::size_t count, const Setting& setting) const {
    Load load;
    load.setting = setting;
    for (std::size_t i = 0; i < count; ++i)
      load.members.push_back({.question = i % question_count()});
    return load;
  }

  Outcome expect_equal(const Load& load) {
    Outcome outcome = run(*subject_, load);
    for (const std::string& text : outcome.differences) {
      ADD_FAILURE() << GetParam() << ", " << describe(load.setting) << ": " << text;
    }
    return outcome;
  }
  // Each question by itself.
  void expect_each_equal(const Setting& setting, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      Load load;
      load.setting = setting;
      load.members = {{.question = i}};
      expect_equal(load);
    }
  }

  Subject* subject_ = nullptr;
};

TEST_P(Axis, TheReferenceRepeats) { expect_each_equal({}, small() ? 2 : 7); }

TEST_P(Axis, Batch7) { expect_equal(batch(7, {})); }

TEST_P(Axis, Batch32) { expect_equal(batch(32, {})); }

TEST_P(Axis, BatchOfManyShortSteps) {
  Setting setting;
  setting.batched_tokens = 33;
  setting.seqs = 9;
  expect_equal(batch(small() ? 9 : 32, setting));
}

TEST_P(Axis, Chunk1) {
  Setting setting;
  setting.chunk = 1;
  expect_equal(batch(question_count(), setting));
}

TEST_P(Axis, Chunk17) {
  Setting setting;
  setting.chunk = 17;
  expect_each_equal(setting, question_count());
}

TEST_P(Axis, Chunk64) {
  Setting setting;
  setting.chunk = 64;
  expect_each_equal(setting, question_count());
}

TEST_P(Axis, ChunksByTheClock) {
  Setting setting;
  setting.chunk = 0;
  setting.step_seconds = 0.0003;
  expect_equal(batch(small() ? 4 : 12, setting));
}

TEST_P(Axis, Threads) {
  for (const int threads : {2, 3}) {
    Setting setting;
    setting.threads = threads;
    expect_equal(batch(7, setting));
    expect_each_equal(setting, small() ? 2 : 9);
  }
}

TEST_P(Axis, InstructionSets) {
  for (const tensor::Isa isa : isas()) {
    // Dear on SmolLM2.
    if (small() && isa == tensor::Isa::kScalar && !run_long_tests()) continue;
    Setting setting;
    setting.isa = isa;
    expect_equal(batch(7, setting));
    expect_each_equal(setting, small() ? 2 : 9);
  }
}

TEST_P(Axis, WholePrefixCached) {
  Setting setting;
  setting.cache = true;
  Load load = batch(question_count(), setting);
  for (const Member& member : load.members) {
    load.before.push_back(subject_->questions()[member.question].prompt);
  }
  EXPECT_GT(expect_equal(load).cached_tokens, 0);
}

TEST_P(Axis, PartOfThePrefixCached) {
  Setting setting;
  setting.cache = true;
  for (const std::size_t cut : {16u, 33u, 64u, 80u}) {
    Load load = batch(question_count(), setting);
    for (const Member& member : load.members) {
      const auto& prompt = subject_->questions()[member.question].prompt;
      if (prompt.size() <= cut) continue;
      load.before.emplace_back(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(cut));
    }
    EXPECT_GT(expect_equal(load).cached_tokens, 0) << cut;
  }
}

// Their pages are known from longer prompts, which left windows further on only: the rows that the
// windows depend on run again, over what is cached.
TEST_P(Axis, PrefixCachedWithoutItsWindows) {
  Setting setting;
  setting.cache = true;
  for (const int chunk : {512, 17, 1}) {
    setting.chunk = chunk;
    Load load = batch(question_count(), setting);
    for (const Member& member : load.members) {
      auto longer = subject_->questions()[member.question].prompt;
      longer.resize(std::min<std::size_t>(longer.size() + 40, 250), 5);
      load.before.push_back(std::move(longer));
    }
    const Outcome outcome = expect_equal(load);
    if (outcome.status.window_pages_total == 0) continue;  // a model without windows
    EXPECT_GT(outcome.status.windows_rebuilt, 0);
    EXPECT_GT(outcome.status.window_rows, 0);
    EXPECT_GT(outcome.cached_tokens, 0);
  }
}

// The later ones find pages of those that still run.
TEST_P(Axis, PrefixSharedWhileItIsComputed) {
  Setting setting;
  setting.cache = true;
  setting.chunk = 17;
  setting.batched_tokens = 64;
  Load load = batch(2 * question_count(), setting);
  load.late = question_count();
  expect_equal(load);
}

// The longest come first and yield to all others.
// One after the other, so that drafts reach every row of a step alone, and in a batch.
TEST_P(Axis, Drafts) {
  Setting setting;
  setting.drafts = 4;
  expect_each_equal(setting, small() ? 1 : 7);
  setting.cache = true;
  const Outcome outcome = expect_equal(batch(7, setting));
  EXPECT_GT(outcome.status.draft_tokens, 0);
  setting.threads = 2;
  setting.drafts = 9;
  expect_equal(batch(7, setting));
}

TEST_P(Axis, Preempted) {
  for (const bool cache : {false, true}) {
    Setting setting;
    setting.cache = cache;
    setting.seqs = 16;
    Load load = batch(small() ? 7 : 16, setting);
    std::ranges::sort(load.members, std::ranges::greater{}, [&](const Member& member) {
      return subject_->questions()[member.question].prompt.size();
    });
    for (std::size_t i = 0; i < load.members.size(); ++i) {
      load.members[i].priority = static_cast<int>(load.members.size() - i);
    }
    load.late = load.members.size() - 2;
    load.setting.pages = pages_of_longest(*subject_, load) + 3;
    EXPECT_GT(expect_equal(load).status.preemptions, 0) << "cache " << cache;
  }
}

TEST_P(Axis, MatesCancelled) {
  Setting setting;
  setting.cache = true;
  setting.chunk = 64;
  Load load = batch(small() ? 7 : 32, setting);
  for (std::size_t i = 1; i < load.members.size(); i += 2) {
    load.members[i].cancel_after = static_cast<int>(i % 7);
  }
  EXPECT_GT(expect_equal(load).status.aborted, 0);
}

// A choice of several that start from the same pages is what it would be as the only one.
TEST_P(Axis, ChoicesDoNotTouchEachOther) {
  const auto engine = subject_->start({}, 64);
  const auto first_choice = [&](int length, int n) {
    engine::Request request;
    for (int i = 0; i < length; ++i) request.prompt.push_back(3 + i * 7 % 200);
    request.n = n;
    request.max_tokens = small() ? 6 : 20;
    request.sampling.logprobs = 2;
    request.sampling.seed = 8;
    auto events = std::make_shared<engine::EventStream>();
    EXPECT_TRUE(engine->submit(request, events));
    Trace trace(n);
    while (!trace.finished()) {
      if (const auto event = events->wait(1000)) trace.absorb(*event);
    }
    trace.choices.resize(1);
    return trace;
  };
  for (const int length : {9, 16, 23, 40}) {
    EXPECT_EQ(difference(first_choice(length, 3), first_choice(length, 1), false), "") << length;
  }
}

TEST_P(Axis, TenantsAndSaltsShareNothing) {
  Setting setting;
  setting.cache = true;
  const auto engine = subject_->start(setting, 64);
  const auto cached = [&](const std::string& tenant, const std::string& salt) {
    engine::Request request;
    request.prompt = subject_->questions()[4].prompt;
    request.prompt.resize(50, 3);
    request.tenant = tenant;
    request.salt = salt;
    request.max_tokens = 1;
    auto events = std::make_shared<engine::EventStream>();
    EXPECT_TRUE(engine->submit(request, events));
    Trace trace(1);
    while (!trace.finished()) {
      if (const auto event = events->wait(1000)) trace.absorb(*event);
    }
    return trace.choices[0].finish->usage.cached_tokens;
  };
  EXPECT_EQ(cached("a", ""), 0);
  EXPECT_EQ(cached("b", ""), 0);
  EXPECT_EQ(cached("a", "x"), 0);
  EXPECT_EQ(cached("", "a"), 0);
  EXPECT_EQ(cached("a", ""), 48);
  EXPECT_EQ(cached("a", "x"), 48);
}

// A penalty that leaves no chance to what occurred sees the prompt, whoever computed it.
TEST_P(Axis, RepetitionPenaltyReadsThePrompt) {
  Setting setting;
  setting.cache = true;
  const auto engine = subject_->start(setting, 64);
  for (int round = 0; round < 2; ++round) {
    engine::Request request;
    // Every odd id below 300, so that the best next token is often among them.
    for (TokenId token = 1;
         token < std::min<TokenId>(300, static_cast<TokenId>(subject_->info().vocab_size));
         token += 2) {
      request.prompt.push_back(token);
    }
    request.max_tokens = 20;
    request.sampling.temperature = 0;
    request.sampling.repetition_penalty = 1000;
    auto events = std::make_shared<engine::EventStream>();
    ASSERT_TRUE(engine->submit(request, events));
    Trace trace(1);
    while (!trace.finished()) {
      if (const auto event = events->wait(1000)) trace.absorb(*event);
    }
    std::vector<TokenId> seen = request.prompt;
    for (const TokenId token : trace.choices[0].tokens) {
      EXPECT_EQ(std::ranges::count(seen, token), 0) << "token " << token << " occurred before";
      seen.push_back(token);
    }
  }
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = tiny_names();
  names.emplace_back(kSmolLM2);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Exactness, Axis, ::testing::ValuesIn(all_names()), [](const auto& named) {
  return named.param;
});

}  // namespace
}  // namespace artery::exactness
