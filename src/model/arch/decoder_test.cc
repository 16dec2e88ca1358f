// The decoder against a second, naive formulation: plain loops in double over the file's float32
// tensors, without Backend, pages or batches.

#include "model/arch/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "testing/mem_file_system.h"
#include "testing/model_runner.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::GgufWriter;
using testing::ModelRunner;
using testing::tiny_model;
using testing::TinyModelOptions;
using Vector = std::vector<double>;

class NaiveModel {
 public:
  NaiveModel(const GgufFile& file, const TinyModelOptions& o) : file_(file), o_(o) {
    head_dim_ = o.head_dim > 0 ? o.head_dim : o.embedding / o.heads;
  }

  // Logits of the last token.
  Vector logits(const std::vector<TokenId>& tokens) {
    const std::size_t count = tokens.size();
    std::vector<Vector> x(count);
    const Vector table = tensor("token_embd.weight");
    for (std::size_t t = 0; t < count; ++t) {
      const auto start = table.begin() + std::ptrdiff_t{tokens[t]} * o_.embedding;
      x[t].assign(start, start + o_.embedding);
    }
    for (int layer = 0; layer < o_.layers; ++layer) run_layer(layer, x);
    const Vector normed = norm(x.back(), "output_norm.weight");
    return linear(o_.tied ? "token_embd" : "output", normed);
  }

 private:
  Vector tensor(const std::string& name) const {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return {};
    std::vector<std::byte> scratch;
    const auto bytes = file_.rows(*info, 0, info->rows(), scratch).value();
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return Vector(values.begin(), values.end());
  }

  Vector linear(const std::string& name, const Vector& x) const {
    const Vector w = tensor(name + ".weight");
    Vector y = tensor(name + ".bias");
    y.resize(w.size() / x.size());
    for (std::size_t n = 0; n < y.size(); ++n)
      for (std::size_t k = 0; k < x.size(); ++k) y[n] += w[n * x.size() + k] * x[k];
    return y;
  }

  Vector norm(const Vector& x, const std::string& name) const {
    const Vector w = tensor(name);
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + double{1e-5f});
    Vector out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * w[i];
    return out;
  }

  void rotate(Vector& heads, std::size_t position) const {
    const bool halves = o_.architecture == "qwen2";
    const Vector divisors = tensor("rope_freqs.weight");
    const auto half = static_cast<std::size_t>(head_dim_ / 2);
    for (std::size_t head = 0; head < heads.size(); head += 2 * half) {
      for (std::size_t i = 0; i < half; ++i) {
        const double exponent = -static_cast<double>(i) / static_cast<double>(half);
        double angle = static_cast<double>(position) * std::pow(10000.0, exponent);
        if (!divisors.empty()) angle /= divisors[i];
        double& a = heads[head + (halves ? i : 2 * i)];
        double& b = heads[head + (halves ? i + half : 2 * i + 1)];
        const double old = a;
        a = old * std::cos(angle) - b * std::sin(angle);
        b = old * std::sin(angle) + b * std::cos(angle);
      }
    }
  }

  // Attention of the head that starts at `q` over positions 0 .. last of keys and values.
  Vector attend(
      const double* q,
      std::size_t kv_at,
      const std::vector<Vector>& keys,
      const std::vector<Vector>& values,
      std::size_t last
  ) const {
    const auto dim = static_cast<std::size_t>(head_dim_);
    Vector weight(last + 1);
    double sum = 0;
    for (std::size_t p = 0; p <= last; ++p) {
      double dot = 0;
      for (std::size_t d = 0; d < dim; ++d) dot += q[d] * keys[p][kv_at + d];
      sum += weight[p] = std::exp(dot / std::sqrt(static_cast<double>(dim)));
    }
    Vector out(dim);
    for (std::size_t p = 0; p <= last; ++p)
      for (std::size_t d = 0; d < dim; ++d) out[d] += weight[p] / sum * values[p][kv_at + d];
    return out;
  }

  void run_layer(int layer, std::vector<Vector>& x) const {
    const std::string block = "blk." + std::to_string(layer) + ".";
    std::vector<Vector> keys(x.size());
    std::vector<Vector> values(x.size());
    const auto dim = static_cast<std::size_t>(head_dim_);
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Vector normed = norm(x[t], block + "attn_norm.weight");
      keys[t] = linear(block + "attn_k", normed);
      values[t] = linear(block + "attn_v", normed);
      Vector q = linear(block + "attn_q", normed);
      rotate(keys[t], t);
      rotate(q, t);
      Vector context;
      for (int h = 0; h < o_.heads; ++h) {
        const auto kv_head = static_cast<std::size_t>(h / (o_.heads / o_.kv_heads));
        const Vector part =
            attend(q.data() + static_cast<std::size_t>(h) * dim, kv_head * dim, keys, values, t);
        context.insert(context.end(), part.begin(), part.end());
      }
      accumulate(x[t], linear(block + "attn_output", context));
    }
    for (Vector& row : x) {
      const Vector normed = norm(row, block + "ffn_norm.weight");
      Vector gate = linear(block + "ffn_gate", normed);
      const Vector up = linear(block + "ffn_up", normed);
      for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      accumulate(row, linear(block + "ffn_down", gate));
    }
  }

  static void accumulate(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const GgufFile& file_;
  const TinyModelOptions o_;
  int head_dim_ = 0;
};

std::vector<TokenId> random_tokens(std::size_t count, int vocab) {
  std::mt19937 random(7);
  std::vector<TokenId> out(count);
  for (TokenId& token : out) token = static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
  return out;
}

// Loads, then drops the file: a model must not point into it.
std::unique_ptr<Model> load(
    const std::string& bytes, tensor::Backend& backend, tensor::KvType kv_type
) {
  testing::MemFileSystem files;
  files.add("t.gguf", bytes);
  const auto file = GgufFile::open("t.gguf", files);
  EXPECT_TRUE(file);
  LoadOptions options;
  options.kv_type = kv_type;
  std::uint64_t done = 0;
  std::uint64_t total = 1;
  options.on_progress = [&](std::uint64_t d, std::uint64_t t) {
    EXPECT_GT(d, done);
    done = d;
    total = t;
  };
  auto model = load_model(**file, backend, options);
  EXPECT_TRUE(model) << model.error().message;
  EXPECT_EQ(done, total);
  return model ? model.take() : nullptr;
}

std::unique_ptr<tensor::Backend> reference(tensor::ComputePool& pool) {
  return tensor::make_reference_backend(pool);
}

void expect_same_as_naive(const TinyModelOptions& options, const GgufWriter& writer) {
  const std::string bytes = writer.bytes();
  testing::MemFileSystem files;
  files.add("t.gguf", bytes);
  const auto file = GgufFile::open("t.gguf", files);
  ASSERT_TRUE(file) << file.error().message;
  tensor::ComputePool pool(2);
  const auto backend = reference(pool);
  const auto model = load(bytes, *backend, tensor::KvType::kF64);
  ASSERT_NE(model, nullptr);
  auto runner = ModelRunner::make(*model, 64);
  ASSERT_TRUE(runner);
  const auto tokens = random_tokens(37, static_cast<int>(model->info().vocab_size));
  const auto all = runner->run_all(tokens, 64);
  NaiveModel naive(**file, options);
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{16}, std::size_t{17}, tokens.size()}) {
    const Vector expected = naive.logits({tokens.begin(), tokens.begin() + std::ptrdiff_t(length)});
    const float* row = all.data() + (length - 1) * expected.size();
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(row[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << length << " " << i;
  }
}

TEST(Decoder, EqualsTheNaiveForward) {
  const std::vector<TinyModelOptions> forms = {
      {},
      {.heads = 4, .kv_heads = 1, .tied = true},
      {.heads = 2, .kv_heads = 2, .head_dim = 48},
      {.architecture = "qwen2"},
      {.architecture = "qwen2", .head_dim = 8, .tied = true},
  };
  for (const TinyModelOptions& form : forms) expect_same_as_naive(form, tiny_model(form));
}

TEST(Decoder, UsesOptionalBiasesAndLlama3Divisors) {
  const TinyModelOptions options{.layers = 1};
  GgufWriter writer = tiny_model(options);
  auto ramp = [&](const char* name, int size, float start) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = start + 0.01f * static_cast<float>(i);
    writer.set_values(name, tensor::DType::kF32, {size}, values);
  };
  ramp("blk.0.attn_q.bias", 64, 0);
  ramp("blk.0.attn_output.bias", 64, -0.5f);
  ramp("blk.0.ffn_up.bias", 96, 0.1f);
  ramp("output.bias", 259, -1);
  ramp("rope_freqs.weight", 8, 1.5f);
  expect_same_as_naive(options, writer);
}

// The same bits however the sequence is cut, and whichever rows ask for logits.
TEST(Decoder, ChunksAndLogitRowsChangeNoBit) {
  const TinyModelOptions options{.seed = 3, .weight_type = tensor::DType::kQ8_0};
  const std::string bytes = tiny_model(options).bytes();
  tensor::ComputePool pool(2);
  const std::unique_ptr<tensor::Backend> backends[] = {
      reference(pool), tensor::make_fast_backend(pool, tensor::best_isa())
  };
  for (const auto& backend : backends) {
    SCOPED_TRACE(backend->numerics_class());
    const bool exact = backend == backends[0];
    const auto kv_type = exact ? tensor::KvType::kF64 : tensor::KvType::kI16;
    const auto model = load(bytes, *backend, kv_type);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(
        model->kv_layout().numerics_id,
        backend->numerics_class() + (exact ? "/kv-f64" : "/kv-int16")
    );
    auto runner = ModelRunner::make(*model, 100);
    ASSERT_TRUE(runner);
    const auto tokens = random_tokens(90, 259);
    const auto whole = runner->run_all(tokens, 100);
    for (const int chunk : {1, 7, 16, 33})
      EXPECT_EQ(runner->run_all(tokens, chunk), whole) << chunk;
    const std::vector<std::int32_t> wanted = {5, 40, 89};
    const auto some = runner->run(tokens, wanted, 20);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_EQ(
          std::memcmp(&some[i * 259], &whole[static_cast<std::size_t>(wanted[i]) * 259], 259 * 4), 0
      );
  }
}

TEST(Decoder, LayoutAndContextLimit) {
  const std::string bytes = tiny_model({.layers = 3}).bytes();
  testing::MemFileSystem files;
  files.add("t.gguf", bytes);
  const auto file = GgufFile::open("t.gguf", files);
  tensor::ComputePool pool(1);
  const auto backend = reference(pool);
  LoadOptions options;
  options.kv_type = tensor::KvType::kF64;
  options.context_max = 100;
  const auto model = load_model(**file, *backend, options);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->info().context_length, 100);
  EXPECT_EQ((*model)->info().weights_digest.size(), 64u);
  EXPECT_GT((*model)->info().weight_bytes, 0);
  const KvLayout layout = (*model)->kv_layout();
  ASSERT_EQ(layout.groups.size(), 1u);
  EXPECT_EQ(layout.groups[0].geometry.layers, 3);
  // Three layers, two kv heads of 16, keys and values of 8 bytes.
  EXPECT_EQ(layout.groups[0].entry_bytes, 3 * 2 * 16 * 2 * 8);
  EXPECT_EQ(layout.bytes_per_token(), 3 * 2 * 16 * 2 * 8);
  EXPECT_EQ(layout.record_pages, 16);
}

}  // namespace
}  // namespace artery::model
