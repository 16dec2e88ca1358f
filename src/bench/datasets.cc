#include "bench/datasets.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "bench/sharegpt_reader.h"

namespace artery::bench {
namespace {

using OnProgress = std::function<void(std::int64_t, std::int64_t)>;

constexpr std::size_t kFileBytesMax = std::size_t{4} << 30;

std::int64_t capped(std::int64_t tokens, std::int64_t most) {
  return most > 0 ? std::min(tokens, most) : tokens;
}

Result<Workload> random_workload(
    const DatasetConfig& config, TextMaker& maker, Dice& dice, const OnProgress& on_progress
) {
  const auto length = [&](std::int64_t middle) {
    const double ratio = config.random_range_ratio;
    const auto low =
        static_cast<std::int64_t>(std::floor(static_cast<double>(middle) * (1 - ratio)));
    const auto high =
        static_cast<std::int64_t>(std::ceil(static_cast<double>(middle) * (1 + ratio)));
    return std::uniform_int_distribution<
        std::int64_t>(std::max<std::int64_t>(low, 1), std::max<std::int64_t>(high, 1))(dice);
  };
  Workload work;
  const std::int64_t prefix_len = config.random_prefix_len;
  const std::string prefix = prefix_len > 0 ? maker.block(config.seed, prefix_len) : std::string();
  for (std::int64_t i = 0; i < config.num_prompts; ++i) {
    const std::int64_t input =
        capped(prefix_len + length(config.random_input_len), config.input_len_max);
    WorkRequest request;
    MadeText made =
        prefix.empty() ? TRY(maker.make_text(input, dice)) : TRY(maker.join({prefix}, input, dice));
    request.prompt = std::move(made.text);
    request.input_tokens = made.tokens;
    request.output_tokens = capped(length(config.random_output_len), config.output_len_max);
    work.requests.push_back(std::move(request));
    on_progress(i + 1, config.num_prompts);
  }
  work.note = "random words";
  return work;
}

// Lengths like those of ShareGPT conversations: log-normal with the means the vLLM paper gives for
// the set (161 in, 338 out; SOSP'23, figure 11), and its usual limits of 1,024 and 2,048 together.
// The deviations are ours.
Result<Workload> sharegpt_like(
    const DatasetConfig& config, TextMaker& maker, Dice& dice, const OnProgress& on_progress
) {
  const auto draw = [&](double mean, double sigma) {
    std::lognormal_distribution<double> lengths(std::log(mean) - sigma * sigma / 2, sigma);
    return static_cast<std::int64_t>(std::clamp(lengths(dice), 4.0, 1024.0));
  };
  Workload work;
  for (std::int64_t i = 0; i < config.num_prompts; ++i) {
    const std::int64_t input = capped(draw(161, 1.2), config.input_len_max);
    std::int64_t output = draw(338, 0.9);
    if (config.sharegpt_output_len > 0) output = config.sharegpt_output_len;
    MadeText made = TRY(maker.make_text(input, dice));
    work.requests.push_back(
        {std::move(made.text), made.tokens, capped(output, config.output_len_max), 0}
    );
    on_progress(i + 1, config.num_prompts);
  }
  work.note = "built-in ShareGPT-like lengths (log-normal, means 161 in and 338 out), random words";
  return work;
}

Result<Workload> sharegpt_workload(
    const DatasetConfig& config, TokenCounter* counter, Dice& dice, const OnProgress& on_progress
) {
  if (counter == nullptr)
    return fail_field(
        "--dataset-name",
        "sharegpt from a file needs token counts: the server has no /tokenize, give --tokenizer"
    );
  const std::string bytes = TRY(read_packed(config.path, kFileBytesMax));
  std::vector<Conversation> talks = TRY(read_sharegpt(bytes, std::size_t{1} << 20));
  std::shuffle(talks.begin(), talks.end(), dice);
  Workload work;
  for (Conversation& talk : talks) {
    if (static_cast<std::int64_t>(work.requests.size()) == config.num_prompts) break;
    const std::int64_t input = TRY(counter->count(talk.prompt));
    std::int64_t output = TRY(counter->count(talk.answer));
    if (config.sharegpt_output_len > 0) output = config.sharegpt_output_len;
    // What other load generators leave out: too short to time, or too long for the set's purpose.
    if (input < 4 || output < 4 || input > 1024 || input + output > 2048) continue;
    if (config.input_len_max > 0 && input > config.input_len_max) continue;
    work.requests.push_back(
        {std::move(talk.prompt), input, capped(output, config.output_len_max), 0}
    );
    on_progress(static_cast<std::int64_t>(work.requests.size()), config.num_prompts);
  }
  if (work.requests.empty())
    return fail(Code::kBadFile, "{}: no conversation of a usable length", config.path);
  work.note = fmt::format("first turns of {}", config.path);
  return work;
}

// Equal block ids become equal text, so prompts share what they shared in the recording.
Result<Workload> trace_workload(
    const DatasetConfig& config, TextMaker& maker, Dice& dice, const OnProgress& on_progress
) {
  if (config.path.empty()) return fail_field("--dataset-path", "trace needs a file");
  const std::string bytes = TRY(read_packed(config.path, kFileBytesMax));
  const Trace trace = TRY(read_trace(bytes, static_cast<std::size_t>(config.num_prompts)));
  std::map<std::uint64_t, std::string> texts;
  Workload work;
  std::int64_t cut = 0;
  for (const TraceRow& row : trace.rows) {
    const std::int64_t input = capped(row.input_tokens, config.input_len_max);
    cut += input < row.input_tokens ? 1 : 0;
    std::vector<std::string> blocks;
    for (std::size_t i = 0; i < row.blocks.size(); ++i) {
      if (static_cast<std::int64_t>(i) * trace.block_tokens >= input) break;
      std::string& text = texts[row.blocks[i]];
      if (text.empty()) text = maker.block(row.blocks[i], trace.block_tokens);
      blocks.push_back(text);
    }
    MadeText made = TRY(maker.join(blocks, input, dice));
    work.requests.push_back(
        {std::move(made.text),
         made.tokens,
         capped(row.output_tokens, config.output_len_max),
         row.time_s / config.trace_speedup}
    );
    on_progress(
        static_cast<std::int64_t>(work.requests.size()),
        static_cast<std::int64_t>(trace.rows.size())
    );
  }
  work.timed = trace.timed;
  work.note = fmt::format("{} trace {}", trace.format, config.path);
  if (cut > 0) work.note += fmt::format(", {} prompts cut to {} tokens", cut, config.input_len_max);
  return work;
}

}  // namespace

Result<Workload> make_workload(
    const DatasetConfig& config,
    TextMaker& maker,
    TokenCounter* counter,
    const OnProgress& on_progress
) {
  Dice dice(config.seed);
  if (config.name == "trace") return trace_workload(config, maker, dice, on_progress);
  if (config.name == "random") return random_workload(config, maker, dice, on_progress);
  if (config.path.empty()) return sharegpt_like(config, maker, dice, on_progress);
  return sharegpt_workload(config, counter, dice, on_progress);
}

}  // namespace artery::bench
