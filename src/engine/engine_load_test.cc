// The engine under load with a real model: how much of the time nobody computes, what sampling
// takes, how steady the streams are. Figures are printed; what is asserted leaves room for a busy
// machine. Skipped where the weights are not.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <ctime>

#include "engine/engine_load.h"
#include "engine/sampler.h"
#include "testing/seq_random.h"

namespace artery::engine {
namespace {

using testing::SeqRandom;

constexpr const char* kSmall = "SmolLM2-135M-Instruct.Q4_1.gguf";

// "Once upon a time ...", so that answers are text and their distributions those of text.
std::vector<TokenId> story() {
  return {6403, 1980, 253, 655, 28, 665, 436, 253, 1838, 8180, 3365, 14176, 30, 2306, 5732, 288};
}

struct Sampling {
  const char* name;
  double temperature;
  double top_p;
};
constexpr Sampling kGreedy = {"greedy", 0, 1};
constexpr Sampling kNucleus = {"t0.8 p0.95", 0.8, 0.95};
constexpr Sampling kPlain = {"t1", 1, 1};

Request request_of(
    const RealEngine& real,
    std::uint64_t seed,
    std::int64_t prompt,
    std::int64_t out,
    const Sampling& sampling
) {
  Request request;
  request.prompt = prompt > 0 ? load_prompt(seed, prompt, real.vocab) : story();
  request.max_tokens = out;
  request.sampling.temperature = sampling.temperature;
  request.sampling.top_p = sampling.top_p;
  request.sampling.seed = seed;
  request.use_prefix_cache = false;
  return request;
}

struct Figures {
  double wall = 0, forward = 0, gap = 0;
  std::size_t steps = 0;
};

// All streams at once; figures over the steps in which every one of them decodes.
Figures run_streams(RealEngine& real, int streams, std::int64_t out, const Sampling& sampling) {
  real.times = {};
  std::vector<std::shared_ptr<EventStream>> events;
  for (int i = 0; i < streams; ++i) {
    events.push_back(std::make_shared<EventStream>());
    const auto id = real.engine->submit(
        request_of(real, static_cast<std::uint64_t>(i + 1), 0, out, sampling), events.back()
    );
    EXPECT_TRUE(id);
  }
  std::vector<std::thread> readers;
  for (auto& stream : events) readers.emplace_back([&stream] { collect(*stream, 1); });
  for (auto& reader : readers) reader.join();
  Figures f;
  const ForwardTimes& t = real.times;
  std::size_t first = t.rows.size(), last = 0;
  for (std::size_t i = 0; i < t.rows.size(); ++i) {
    if (t.rows[i] != streams) continue;
    first = std::min(first, i);
    last = i;
  }
  for (std::size_t i = first; i + 1 <= last; ++i) {
    f.forward += t.end[i] - t.begin[i];
    f.gap += t.begin[i + 1] - t.end[i];
    ++f.steps;
  }
  f.wall = f.forward + f.gap;
  return f;
}

double thread_cpu_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Processor time of one row, on one thread, for text-like and for flat distributions.
TEST(SamplerSpeed, OneRow) {
  constexpr std::size_t kVocab = 49152;
  for (const double spread : {2.5, 1.0}) {
    SeqRandom random(3);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) {
      double sum = -6;  // of 12 uniforms: nearly a normal
      for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
      logit = static_cast<float>(spread * sum);
    }
    if (spread > 2) logits[777] = 18;
    for (const Sampling& sampling : {kGreedy, kNucleus, kPlain}) {
      SamplingParams params;
      params.temperature = sampling.temperature;
      params.top_p = sampling.top_p;
      Sampler sampler;
      double best = 1;
      for (int i = 0; i < 30; ++i) {
        const double begin = thread_cpu_s();
        ASSERT_TRUE(sampler.sample(logits, {params, 0, i, 0, nullptr, nullptr}));
        best = std::min(best, thread_cpu_s() - begin);
      }
      fmt::print("spread {}, {:11}: {:.1f} us\n", spread, sampling.name, 1e6 * best);
    }
  }
}

TEST(EngineLoad, ShareBetweenForwards) {
  const std::string path = find_weights(kSmall);
  if (path.empty()) GTEST_SKIP() << kSmall << " is not here";
  Config config;
  config.max_model_len = 512;
  config.kv_pool_bytes = 256 << 20;
  auto real = load_real_engine(path, config);
  ASSERT_TRUE(real) << real.error().message;
  for (const int streams : {1, 8, 32}) {
    for (const Sampling& sampling : {kGreedy, kNucleus, kPlain}) {
      const Figures f = run_streams(**real, streams, 24, sampling);
      fmt::print(
          "{:2} streams {:11}: {:3} steps, forward {:.2f} ms, between forwards {:.3f} ms, {:.2f} "
          "%\n",
          streams,
          sampling.name,
          f.steps,
          1e3 * f.forward / static_cast<double>(f.steps),
          1e3 * f.gap / static_cast<double>(f.steps),
          100 * f.gap / f.wall
      );
    }
  }
}

}  // namespace
}  // namespace artery::engine
