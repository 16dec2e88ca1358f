// Prints a SHA-256 of everything that is meant to be the same bits on every compiler, optimisation
// level, sanitizer and instruction set: logits, KV pages and sampled answers of tiny models of many
// weight types, the sampler, the noise, and the mathematics under them.
//
//   artery_bits                 prints a line a case, for each instruction set of this machine
//   artery_bits --check FILE    compares each with the lines of FILE; exit code 1 on a difference

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "engine/kv_pool.h"
#include "engine/noise.h"
#include "engine/sampler.h"
#include "model/load.h"
#include "tensor/math.h"
#include "testing/mem_file_system.h"
#include "testing/seq_random.h"
#include "testing/tiny_model.h"

namespace artery::exactness {
namespace {

using tensor::DType;
using testing::SeqRandom;
using testing::TinyModelOptions;

constexpr int kPromptTokens = 150;
constexpr int kAnswerTokens = 24;

// Collects values and says their digest.
class Sum {
 public:
  template <typename T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void add_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::string digest() const { return hex(sha256(bytes_)); }

 private:
  std::vector<std::byte> bytes_;
};

using Lines = std::map<std::string, std::string>;  // case -> digest

// Hands forwards on and keeps what they gave.
class Recorder final : public model::Model {
 public:
  Recorder(model::Model& model, Sum& logits, Sum& kv) : model_(model), logits_(logits), kv_(kv) {}
  const model::ModelInfo& info() const override { return model_.info(); }
  model::KvLayout kv_layout() const override { return model_.kv_layout(); }
  void forward(const model::ForwardBatch& batch, std::span<float> logits) override {
    model_.forward(batch, logits);
    logits_.add_bytes(std::as_bytes(logits));
    const Position end = batch.positions.back() + 1;
    // Pages that became whole; the rest of a page may hold anything.
    for (Position page = batch.positions.front() / kPageTokens; page < end / kPageTokens; ++page) {
      for (std::size_t group = 0; group < batch.kv.size(); ++group) {
        const tensor::KvPages& kv = batch.kv[group];
        const PageId id = batch.page_tables[group].pages[static_cast<std::size_t>(page)];
        const std::int64_t size = kv.geometry.page_bytes();
        kv_.add_bytes({kv.base + id * size, static_cast<std::size_t>(size)});
      }
    }
  }

 private:
  model::Model& model_;
  Sum& logits_;
  Sum& kv_;
};

// Where a block holds half-precision scales. Their other bytes may be anything.
struct ScalePlaces {
  DType type;
  std::vector<std::size_t> at;
};
const std::vector<ScalePlaces>& block_types() {
  static const std::vector<ScalePlaces> types = {
      {DType::kQ5_0, {0}},
      {DType::kQ5_1, {0, 2}},
      {DType::kQ2_K, {80, 82}},
      {DType::kQ3_K, {108}},
      {DType::kQ4_K, {0, 2}},
      {DType::kQ5_K, {0, 2}},
      {DType::kQ6_K, {208}},
      {DType::kIQ4_NL, {0}},
      {DType::kIQ4_XS, {0}},
      {DType::kIQ2_XXS, {0}},
      {DType::kIQ3_S, {0}},
  };
  return types;
}

std::string random_blocks(const ScalePlaces& type, std::int64_t values, SeqRandom& random) {
  const tensor::TypeTraits& traits = tensor::traits(type.type);
  const auto block = static_cast<std::size_t>(traits.block_bytes);
  std::string out(static_cast<std::size_t>(values / traits.block_values) * block, '\0');
  for (char& byte : out) byte = static_cast<char>(random.next() >> 56);
  for (std::size_t begin = 0; begin < out.size(); begin += block) {
    for (const std::size_t at : type.at) {
      // A scale of about 2^-11 in half precision: exponent 4, any fraction.
      const auto scale = static_cast<std::uint16_t>(4u << 10 | (random.next() & 0x3FF));
      std::memcpy(out.data() + begin + at, &scale, sizeof scale);
    }
  }
  return out;
}

// A tiny model whose matrices are random blocks of `type`.
testing::GgufWriter blocks_model(const ScalePlaces& type) {
  TinyModelOptions options;
  options.embedding = 256;
  options.heads = 8;
  options.kv_heads = 2;
  options.feed_forward = 256;
  options.layers = 1;
  testing::GgufWriter out = testing::tiny_model(options);
  SeqRandom random(static_cast<std::uint64_t>(type.type));
  const auto set = [&](const std::string& name, std::int64_t rows) {
    out.set_tensor(name, type.type, {256, rows}, random_blocks(type, 256 * rows, random));
  };
  const std::int64_t vocab = testing::tiny_tokens(options.tokenizer).vocab;
  set("token_embd.weight", vocab);
  set("output.weight", vocab);
  for (const char* name : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    set(fmt::format("blk.0.{}.weight", name), 256);
  }
  for (const char* name : {"attn_k", "attn_v"}) set(fmt::format("blk.0.{}.weight", name), 64);
  return out;
}

TinyModelOptions fast_model(const char* architecture, DType type, int heads, int kv_heads) {
  TinyModelOptions options;
  options.architecture = architecture;
  options.weight_type = type;
  options.heads = heads;
  options.kv_heads = kv_heads;
  options.head_dim = 32;
  options.embedding = 96;
  options.feed_forward = 160;
  return options;
}

engine::Request question() {
  engine::Request request;
  SeqRandom random(3);
  for (int i = 0; i < kPromptTokens; ++i) {
    request.prompt.push_back(static_cast<TokenId>(random.between(0, 258)));
  }
  request.max_tokens = kAnswerTokens;
  request.prompt_logprobs = 3;
  request.sampling.seed = 123;
  request.sampling.temperature = 0.8;
  request.sampling.top_p = 0.95;
  request.sampling.top_k = 50;
  request.sampling.repetition_penalty = 1.1;
  request.sampling.logprobs = 3;
  return request;
}

void add_positions(const std::vector<engine::PositionLogprobs>& positions, Sum& sum) {
  for (const engine::PositionLogprobs& position : positions) {
    sum.add(position.chosen.token);
    sum.add(position.chosen.logprob);
    sum.add(position.rank);
    for (const engine::TokenLogprob& one : position.top) {
      sum.add(one.token);
      sum.add(one.logprob);
    }
  }
}

void run_model(
    const std::string& name,
    const testing::GgufWriter& writer,
    tensor::Backend& backend,
    tensor::KvType kv_type,
    Lines& out
) {
  testing::MemFileSystem files;
  files.add("tiny.gguf", writer.bytes());
  const auto file = model::GgufFile::open("tiny.gguf", files);
  CHECK(file.has_value(), "{}", file.error().message);
  model::LoadOptions options;
  options.kv_type = kv_type;
  auto model = model::load_model(**file, backend, options);
  CHECK(model.has_value(), "{}", model.error().message);
  Sum logits;
  Sum kv;
  // Apart, because how events are merged is up to the consumer's pace.
  Sum tokens;
  Sum prompt_rows;
  Sum rows;
  engine::Config config;
  config.kv_pool_bytes = 32 * engine::KvPool::page_bytes((*model)->kv_layout());
  config.prefill_chunk_max = 64;
  config.step_seconds_max = 0;
  {
    auto engine = engine::make_engine(std::make_unique<Recorder>(**model, logits, kv), config);
    CHECK(engine.has_value(), "{}", engine.error().message);
    auto events = std::make_shared<engine::EventStream>();
    CHECK((*engine)->submit(question(), events).has_value());
    for (bool more = true; more;) {
      const auto event = events->wait(1000);
      if (!event) continue;
      for (const TokenId token : event->token_ids) tokens.add(token);
      add_positions(event->prompt_logprobs, prompt_rows);
      add_positions(event->logprobs, rows);
      more = !event->finish;
    }
  }
  out[name + " logits"] = logits.digest();
  out[name + " kv"] = kv.digest();
  out[name + " tokens"] = tokens.digest();
  out[name + " prompt log probabilities"] = prompt_rows.digest();
  out[name + " log probabilities"] = rows.digest();
}

void run_models(tensor::Backend& backend, tensor::KvType kv_type, Lines& out) {
  const auto fast = [&](const char* name, const TinyModelOptions& options) {
    run_model(name, testing::tiny_model(options), backend, kv_type, out);
  };
  fast("llama_f32", fast_model("llama", DType::kF32, 3, 3));
  fast("llama_f16", fast_model("llama", DType::kF16, 4, 1));
  fast("qwen2_bf16", fast_model("qwen2", DType::kBF16, 3, 1));
  fast("qwen2_q4_0", fast_model("qwen2", DType::kQ4_0, 6, 2));
  fast("llama_q4_1", fast_model("llama", DType::kQ4_1, 3, 1));
  fast("llama_q8_0", fast_model("llama", DType::kQ8_0, 4, 4));
  for (const ScalePlaces& type : block_types()) {
    const std::string name = fmt::format("blocks {}", tensor::name(type.type));
    run_model(name, blocks_model(type), backend, kv_type, out);
  }
}

tensor::Rows random_rows(
    tensor::Backend& backend, std::int64_t rows, std::int64_t cols, SeqRandom& random
) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    values.push_back(static_cast<float>(random.between(-4000, 4000)) / 1024.0f);
  }
  const tensor::Rows out = backend.alloc(rows, cols);
  backend.load(values, out);
  return out;
}

void add_rows(tensor::Backend& backend, const tensor::Rows& rows, Sum& sum) {
  std::vector<float> values(static_cast<std::size_t>(rows.rows * rows.cols));
  backend.store(rows, values);
  sum.add_bytes(std::as_bytes(std::span(values)));
}

// Rows 24 .. 199 of a sequence whose first 24 entries are gone, as a chunk and then row by row.
std::string windowed_attention(tensor::Backend& backend, tensor::KvType type, int window) {
  const tensor::KvGeometry geometry = {1, 2, 24, type};
  std::vector<std::byte> memory(static_cast<std::size_t>(13 * geometry.page_bytes()), std::byte{0});
  std::vector<PageId> pages;
  for (PageId page = 12; page >= 0; --page) pages.push_back(page);
  std::vector<Position> positions;
  for (Position p = 24; p < 200; ++p) positions.push_back(p);
  SeqRandom random(31);
  const std::vector<float> sinks = {0.5f, -3.0f, 2.25f, 0.0f};
  Sum sum;
  const auto run = [&](std::size_t begin, std::size_t end) {
    const std::vector<std::int32_t> offsets = {0, static_cast<std::int32_t>(end - begin)};
    const std::vector<Position> first = {24};
    tensor::AttentionBatch batch;
    batch.positions = std::span(positions).subspan(begin, end - begin);
    batch.offsets = offsets;
    batch.page_table = pages;
    batch.pages_max = std::ssize(pages);
    batch.first = first;
    const tensor::KvPages kv = {memory.data(), geometry};
    const auto rows = static_cast<std::int64_t>(end - begin);
    const tensor::Rows k = random_rows(backend, rows, 48, random);
    const tensor::Rows v = random_rows(backend, rows, 48, random);
    backend.kv_write(k, v, kv, 0, batch);
    const tensor::Rows q = random_rows(backend, rows, 96, random);
    const tensor::Rows out = backend.alloc(rows, 96);
    backend.attention(q, kv, 0, batch, {.scale = 0.2f, .window = window, .sinks = sinks}, out);
    add_rows(backend, out, sum);
    backend.reset();
  };
  run(0, 150);
  for (std::size_t row = 150; row < positions.size(); ++row) run(row, row + 1);
  return sum.digest();
}

// What the tiny models do not use.
void run_verbs(tensor::Backend& backend, const std::vector<tensor::KvType>& types, Lines& out) {
  for (const tensor::KvType type : types) {
    for (const int window : {0, 70}) {
      out[fmt::format("window {} kv {}", window, tensor::name(type))] =
          windowed_attention(backend, type, window);
    }
  }
  SeqRandom random(32);
  Sum sum;
  for (const auto gating :
       {tensor::Gating::kSilu, tensor::Gating::kGeluTanh, tensor::Gating::kClamped}) {
    const tensor::Rows gate = random_rows(backend, 3, 1001, random);
    const tensor::Rows up = random_rows(backend, 3, 1001, random);
    backend.scale(gate, 3.3f);
    backend.gated(gating, gate, up, gate);
    add_rows(backend, gate, sum);
  }
  backend.reset();
  out["gatings"] = sum.digest();
}

void run_math(Lines& out) {
  Sum exp_sum;
  Sum log_sum;
  Sum sincos_sum;
  Sum noise_sum;
  SeqRandom random(17);
  for (int i = 0; i < 4000; ++i) {
    // Drawn one by one: in which order a call's arguments are drawn is up to the compiler.
    const double a = random.unit();
    const double b = random.unit();
    exp_sum.add(tensor::exp_d((a - 0.5) * 1500));
    log_sum.add(tensor::log_d(b * tensor::exp_d((a - 0.5) * 1200)));
    double sine = 0;
    double cosine = 0;
    tensor::sincos_d((b - 0.5) * 2e6, sine, cosine);
    sincos_sum.add(sine);
    sincos_sum.add(cosine);
    sincos_sum.add(tensor::pow_d(a * 1e6, b * 4 - 2));
  }
  for (std::uint32_t i = 0; i < 4000; ++i) {
    const auto position = static_cast<Position>(i * 37 % 1000);
    noise_sum.add(
        engine::noise_gumbel(i * 0x9E3779B97F4Au, i % 3, position, static_cast<TokenId>(i))
    );
  }
  out["exp"] = exp_sum.digest();
  out["log"] = log_sum.digest();
  out["sin cos pow"] = sincos_sum.digest();
  out["noise"] = noise_sum.digest();
}

// Rows with ties, infinities and NaN under every filter.
void run_sampler(Lines& out) {
  engine::Sampler sampler;
  SeqRandom random(23);
  Sum sum;
  for (int i = 0; i < 600; ++i) {
    std::vector<float> logits;
    for (int token = 0; token < 700; ++token) {
      logits.push_back(static_cast<float>(random.between(-400, 400)) / 32.0f);
    }
    if (i % 5 == 0) logits[static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
    if (i % 7 == 0) logits[1] = -std::numeric_limits<float>::infinity();
    engine::SamplingParams params;
    params.temperature = i % 4 * 0.5;
    params.top_k = i % 3 * 40;
    params.top_p = i % 2 == 0 ? 1.0 : 0.9;
    params.min_p = i % 11 == 0 ? 0.05 : 0;
    params.seed = random.next();
    params.logprobs = 4;
    const engine::SampleContext context{params, i % 3, i, 0, nullptr, nullptr};
    const auto sampled = sampler.sample(logits, context);
    CHECK(sampled.has_value());
    sum.add(sampled->token);
    add_positions({sampled->logprobs}, sum);
  }
  out["sampler"] = sum.digest();
}

std::string text_of(const Lines& lines) {
  std::string out;
  for (const auto& [name, digest] : lines) out += fmt::format("{}  {}\n", digest, name);
  return out;
}

Lines read_lines(const std::string& path) {
  const auto text = system_file_system().read(path, std::size_t{1} << 20);
  CHECK(text.has_value(), "{}", text.error().message);
  Lines out;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    const std::string line = text->substr(begin, end - begin);
    if (line.size() > 66) out[line.substr(66)] = line.substr(0, 64);
    begin = end + 1;
  }
  return out;
}

int report(const std::string& who, const Lines& got, const Lines& wanted) {
  int wrong = 0;
  for (const auto& [name, digest] : got) {
    const auto it = wanted.find(name);
    if (it != wanted.end() && it->second == digest) continue;
    fmt::print(
        "{}: {} is {}, wanted {}\n",
        who,
        name,
        digest,
        it == wanted.end() ? "no such case" : it->second
    );
    ++wrong;
  }
  const std::size_t missing = wanted.size() > got.size() ? wanted.size() - got.size() : 0;
  fmt::print("{}: {} cases, {} differ, {} missing\n", who, got.size(), wrong, missing);
  return wrong + static_cast<int>(missing);
}

int run(const std::string& golden) {
  const Lines wanted = golden.empty() ? Lines{} : read_lines(golden);
  tensor::ComputePool pool(2);
  Lines common;
  run_math(common);
  run_sampler(common);
  const auto reference = tensor::make_reference_backend(pool);
  Lines of_reference;
  run_models(*reference, tensor::KvType::kF64, of_reference);
  run_verbs(*reference, {tensor::KvType::kF64}, of_reference);
  for (const auto& [name, digest] : of_reference) common["reference " + name] = digest;
  int wrong = 0;
  for (const auto isa : {tensor::Isa::kScalar, tensor::Isa::kAvx2, tensor::Isa::kAvx512}) {
    if (!tensor::supported(isa)) continue;
    const auto backend = tensor::make_fast_backend(pool, isa);
    Lines lines = common;
    run_models(*backend, tensor::KvType::kI16, lines);
    using enum tensor::KvType;
    run_verbs(*backend, {kF16, kF32, kI16, kI16V8}, lines);
    for (const auto type : {tensor::KvType::kF16, tensor::KvType::kF32}) {
      Lines other;
      run_models(*backend, type, other);
      for (const auto& [name, digest] : other) {
        lines[fmt::format("{} kv {}", tensor::name(type), name)] = digest;
      }
    }
    if (golden.empty()) {
      fmt::print("# {}\n{}", tensor::name(isa), text_of(lines));
    } else {
      wrong += report(std::string(tensor::name(isa)), lines, wanted);
    }
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace artery::exactness

int main(int count, char** arguments) {
  if (count == 1) return artery::exactness::run({});
  if (count == 3 && std::string(arguments[1]) == "--check") {
    return artery::exactness::run(arguments[2]);
  }
  fmt::print(stderr, "artery_bits [--check FILE]\n");
  return 2;
}
