// Random loads: any batch, chunking, threads, cache state, pool size and instruction set at once.
// The seed of every case is printed with a failure; ARTERY_SEED=<it> ARTERY_CASES=1 draws the same
// case again (how the engine's steps fall together in time is up to the machine).
// ARTERY_TEST_LONG=1 draws many more.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "load.h"
#include "subjects.h"
#include "testing/seq_random.h"

namespace artery::exactness {
namespace {

using testing::SeqRandom;

template <typename T>
T pick(SeqRandom& random, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(random.between(0, std::ssize(from) - 1))];
}

std::uint64_t first_seed() {
  if (const char* set = std::getenv("ARTERY_SEED")) return std::strtoull(set, nullptr, 10);
  return std::random_device{}();
}

int case_count(int usual, int many) {
  if (const char* set = std::getenv("ARTERY_CASES")) return std::atoi(set);
  return run_long_tests() ? many : usual;
}

struct Limits {
  std::size_t questions;  // of the subject, from the first
  std::size_t members_max;
  std::int64_t prompt_tokens_max;  // of all members
  std::vector<tensor::Isa> isas;
};

Setting random_setting(SeqRandom& random, const Limits& limits) {
  Setting setting;
  setting.isa = pick(random, limits.isas);
  setting.threads = static_cast<int>(random.between(1, 3));
  setting.chunk = pick<int>(random, {0, 1, 17, 64, 512});
  setting.cache = random.chance(0.7);
  setting.batched_tokens = pick<int>(random, {40, 64, 100, 512, 512});
  setting.seqs = pick<int>(random, {2, 8, 32, 64});
  setting.drafts = pick<int>(random, {0, 0, 1, 4, 9});
  setting.step_seconds = random.chance(0.3) ? 0.001 : 0;
  return setting;
}

Load random_load(SeqRandom& random, const Subject& subject, const Limits& limits) {
  Load load;
  load.setting = random_setting(random, limits);
  auto count = pick<std::size_t>(random, {1, 7, 32});
  count = std::min(count, limits.members_max);
  // Steps of a token each cost the most, and so do plain loops.
  const bool dear = load.setting.chunk == 1 || load.setting.isa == tensor::Isa::kScalar;
  const std::int64_t tokens_max = limits.prompt_tokens_max / (dear ? 3 : 1);
  std::int64_t tokens = 0;
  while (load.members.size() < count && tokens < tokens_max) {
    Member member;
    member.question =
        static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(limits.questions) - 1)
        );
    member.priority = static_cast<int>(random.between(0, 3));
    if (random.chance(0.15)) member.cancel_after = static_cast<int>(random.between(0, 8));
    const auto& prompt = subject.questions()[member.question].prompt;
    tokens += std::ssize(prompt);
    if (load.setting.cache && random.chance(0.3)) {
      const auto cut = random.between(1, std::ssize(prompt));
      load.before.emplace_back(prompt.begin(), prompt.begin() + cut);
      tokens += cut;
    }
    load.members.push_back(member);
  }
  load.late = static_cast<std::size_t>(random.between(0, std::ssize(load.members) - 1));
  if (random.chance(0.5)) {
    const std::int64_t least = std::max<std::int64_t>(4, pages_of_longest(subject, load));
    load.setting.pages = least + random.between(0, 6);
  }
  return load;
}

// Draws `cases` and says how often the rarer things happened, so that a run that tested nothing
// is seen.
void draw_cases(const std::vector<std::string>& names, int cases, const Limits& limits_of_all) {
  const std::uint64_t first = first_seed();
  fmt::print("ARTERY_SEED={} ARTERY_CASES={}\n", first, cases);
  std::int64_t preempted = 0;
  std::int64_t cached = 0;
  std::int64_t answers = 0;
  for (int i = 0; i < cases; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    SeqRandom random(SeqRandom::mix(seed));
    const std::string name = pick(random, names);
    const auto subject = find_subject(name);
    if (!subject) GTEST_SKIP() << subject.error().message;
    Limits limits = limits_of_all;
    limits.questions = std::min(limits.questions, (*subject)->questions().size());
    const Load load = random_load(random, **subject, limits);
    const Outcome outcome = run(**subject, load);
    preempted += outcome.status.preemptions;
    cached += outcome.cached_tokens;
    answers += std::ssize(load.members);
    for (const std::string& text : outcome.differences) {
      ADD_FAILURE() << "ARTERY_SEED=" << seed << " ARTERY_CASES=1: " << name << ", "
                    << describe(load.setting) << ", batch " << load.members.size() << ", "
                    << load.late << " late: " << text;
    }
    if (!outcome.differences.empty()) break;
  }
  fmt::print("{} answers, {} preemptions, {} cached tokens\n", answers, preempted, cached);
  if (cases < 20) return;
  EXPECT_GT(preempted, 0);
  EXPECT_GT(cached, 0);
}

TEST(RandomLoads, TinyModels) {
  const int cases = sanitizer_build() ? case_count(12, 200) : case_count(60, 3000);
  draw_cases(tiny_names(), cases, {26, 32, 3000, isas()});
}

TEST(RandomLoads, SmolLM2) {
  std::vector<tensor::Isa> fast = isas();
  if (!run_long_tests() && fast.size() > 1) fast.erase(fast.begin());  // not the scalar one
  const std::size_t questions = run_long_tests() ? 18 : 12;
  draw_cases({kSmolLM2}, case_count(5, 100), {questions, 32, run_long_tests() ? 3000 : 700, fast});
}

}  // namespace
}  // namespace artery::exactness
