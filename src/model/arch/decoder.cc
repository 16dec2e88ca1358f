#include "model/arch/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/arch/decoder_weights.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

using tensor::Rows;

constexpr std::size_t kNamesShown = 5;

std::string file_stem(const std::string& path) {
  const std::string file = path.substr(path.find_last_of('/') + 1);
  const auto dot = file.rfind('.');
  return dot == std::string::npos || dot == 0 ? file : file.substr(0, dot);
}

std::string model_name(const ModelFile& file) {
  const auto name = file.get_string("general.name");
  if (!name || name->empty() || !is_utf8(*name)) return file_stem(file.path());
  return std::string(*name);
}

// One warning that names the tensors the model does not use.
void warn_unused(
    const ModelFile& file, std::vector<const TensorInfo*> used, std::vector<std::string>& warnings
) {
  std::ranges::sort(used);
  std::vector<std::string> names;
  for (const TensorInfo& info : file.tensors())
    if (!std::ranges::binary_search(used, &info)) names.push_back(printable(info.name));
  if (names.empty()) return;
  const std::size_t count = names.size();
  if (count > kNamesShown) names.resize(kNamesShown);
  warnings.push_back(fmt::format(
      "{}: {} tensor{} not used: {}{}",
      file.path(),
      count,
      count == 1 ? " is" : "s are",
      fmt::join(names, ", "),
      count > kNamesShown ? ", ..." : ""
  ));
}

// "Q5_0, Q6_K (79 % of the weights)": matrices that are unpacked anew in each step.
std::string slow_types(const std::vector<const TensorInfo*>& used) {
  std::vector<std::string_view> names;
  std::uint64_t slow = 0, all = 0;
  for (const TensorInfo* tensor : used) {
    all += tensor->bytes;
    if (tensor->shape.size() < 2 || tensor::WeightMatrix::is_interleaved(tensor->type)) continue;
    slow += tensor->bytes;
    const std::string_view type = tensor::name(tensor->type);
    if (std::ranges::find(names, type) == names.end()) names.push_back(type);
  }
  if (names.empty()) return {};
  return fmt::format("{} ({} % of the weights)", fmt::join(names, ", "), 100 * slow / all);
}

std::int64_t packed_bytes(const DecoderWeights& weights) {
  auto vector = [](const tensor::WeightVector& v) {
    return static_cast<std::int64_t>(v.size() * sizeof(float));
  };
  auto linear = [&](const Linear& l) {
    return static_cast<std::int64_t>(l.weight.bytes()) + vector(l.bias);
  };
  std::int64_t sum = static_cast<std::int64_t>(weights.token_embedding.bytes()) +
                     vector(weights.output_norm) + linear(weights.output);
  for (const DecoderLayer& l : weights.layers) {
    sum += vector(l.attn_norm) + vector(l.ffn_norm);
    for (const Linear* part :
         {&l.attn_q, &l.attn_k, &l.attn_v, &l.attn_output, &l.ffn_gate, &l.ffn_up, &l.ffn_down})
      sum += linear(*part);
  }
  return sum;
}

class Decoder final : public Model {
 public:
  Decoder(
      DecoderSpec spec,
      ModelInfo info,
      DecoderWeights weights,
      tensor::RopeTable rope,
      tensor::Backend& backend,
      tensor::KvType kv_type
  )
      : spec_(std::move(spec)),
        info_(std::move(info)),
        weights_(std::move(weights)),
        rope_(std::move(rope)),
        backend_(backend),
        kv_type_(kv_type) {}

  const ModelInfo& info() const override { return info_; }

  KvLayout kv_layout() const override {
    KvGroup group;
    group.kind = KvKind::kGlobal;
    group.geometry = {
        .layers = static_cast<int>(spec_.layers),
        .kv_heads = static_cast<int>(spec_.kv_heads),
        .head_dim = static_cast<int>(spec_.head_dim),
        .type = kv_type_
    };
    group.entry_bytes = group.geometry.page_bytes() / kPageTokens;
    KvLayout layout;
    layout.groups.push_back(group);
    layout.numerics_id = fmt::format("{}/kv-{}", backend_.numerics_class(), tensor::name(kv_type_));
    // A record stays within 4 MiB (design, "KV"), in whole pages.
    const std::int64_t pages = (std::int64_t{4} << 20) / group.geometry.page_bytes();
    layout.record_pages = static_cast<int>(std::clamp<std::int64_t>(pages, 1, 16));
    return layout;
  }

  void forward(const ForwardBatch& batch, std::span<float> logits) override;
  tensor::ComputePool* compute_pool() override { return &backend_.pool(); }

 private:
  // Activations of one forward, all in the backend's scratch.
  struct Scratch {
    Rows x;        // residual stream [rows, embedding]
    Rows normed;   // [rows, embedding]
    Rows q;        // [rows, heads * head_dim]
    Rows k;        // [rows, kv_heads * head_dim]
    Rows v;        // [rows, kv_heads * head_dim]
    Rows context;  // attention's output [rows, heads * head_dim]
    Rows gate;     // [rows, feed_forward]
    Rows up;       // [rows, feed_forward]
  };

  void check(const ForwardBatch& batch, std::span<float> logits) const;
  Scratch scratch(std::int64_t rows);
  void attend(const ForwardBatch& batch, int index, Scratch& s, Rows addend, bool queries);
  void finish_layer(const DecoderLayer& layer, Scratch& s);
  void keep_rows(std::span<const std::int32_t> rows, Scratch& s);

  const DecoderSpec spec_;
  ModelInfo info_;
  const DecoderWeights weights_;
  const tensor::RopeTable rope_;
  tensor::Backend& backend_;
  const tensor::KvType kv_type_;
};

// The engine's promises. Image rows, token types, taps and suffix rows belong to other families:
// the engine never passes them to a text model.
void Decoder::check(const ForwardBatch& batch, std::span<float> logits) const {
  CHECK(batch.positions.size() == batch.tokens.size());
  CHECK(batch.page_tables.size() == 1 && batch.kv.size() == 1);
  CHECK(
      logits.size() == batch.logit_rows.size() * static_cast<std::size_t>(spec_.vocab),
      "{} logits for {} rows",
      logits.size(),
      batch.logit_rows.size()
  );
}

Decoder::Scratch Decoder::scratch(std::int64_t rows) {
  return {
      .x = backend_.alloc(rows, spec_.embedding),
      .normed = backend_.alloc(rows, spec_.embedding),
      .q = backend_.alloc(rows, spec_.q_rows()),
      .k = backend_.alloc(rows, spec_.kv_rows()),
      .v = backend_.alloc(rows, spec_.kv_rows()),
      .context = backend_.alloc(rows, spec_.q_rows()),
      .gate = backend_.alloc(rows, spec_.feed_forward),
      .up = backend_.alloc(rows, spec_.feed_forward),
  };
}

tensor::Product product(const Linear& linear, const Rows& out) {
  return {&linear.weight, linear.bias, out};
}

// Adds `addend` to the residual stream. s.context = attention of layer `index`; only keys and
// values are made unless `queries`.
void Decoder::attend(const ForwardBatch& batch, int index, Scratch& s, Rows addend, bool queries) {
  const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
  const int head_dim = static_cast<int>(spec_.head_dim);
  const tensor::AttentionBatch where{
      .positions = batch.positions,
      .offsets = batch.offsets,
      .page_table = batch.page_tables[0].pages,
      .pages_max = batch.page_tables[0].pages_max
  };
  const tensor::Product all[] = {
      product(layer.attn_k, s.k), product(layer.attn_v, s.v), product(layer.attn_q, s.q)
  };
  const auto products = std::span(all).first(queries ? 3 : 2);
  backend_.norm_matmuls(s.x, addend, layer.attn_norm, spec_.eps, s.normed, products);
  backend_.rope(s.k, head_dim, batch.positions, rope_);
  backend_.kv_write(s.k, s.v, batch.kv[0], index, where);
  if (!queries) return;
  backend_.rope(s.q, head_dim, batch.positions, rope_);
  backend_.attention(s.q, batch.kv[0], index, where, {.scale = spec_.attention_scale}, s.context);
}

// What follows attention: output projection, added to the residual stream, and feed-forward, which
// s.normed holds and the next norm adds.
void Decoder::finish_layer(const DecoderLayer& layer, Scratch& s) {
  backend_.matmul(s.context, layer.attn_output.weight, layer.attn_output.bias, s.normed);
  const tensor::Product wide[] = {product(layer.ffn_gate, s.gate), product(layer.ffn_up, s.up)};
  backend_.norm_matmuls(s.x, s.normed, layer.ffn_norm, spec_.eps, s.normed, wide);
  const tensor::Product down[] = {product(layer.ffn_down, s.normed)};
  backend_.gated_matmuls(tensor::Gating::kSilu, s.gate, s.up, down);
}

void Decoder::keep_rows(std::span<const std::int32_t> rows, Scratch& s) {
  Scratch kept = scratch(static_cast<std::int64_t>(rows.size()));
  backend_.gather(s.x, rows, kept.x);
  backend_.gather(s.context, rows, kept.context);
  s = kept;
}

void Decoder::forward(const ForwardBatch& batch, std::span<float> logits) {
  check(batch, logits);
  if (batch.tokens.empty()) return;
  backend_.reset();
  Scratch s = scratch(static_cast<std::int64_t>(batch.tokens.size()));
  backend_.embed(weights_.token_embedding, batch.tokens, s.x);
  const int last = static_cast<int>(spec_.layers) - 1;
  Rows addend;
  for (int i = 0; i <= last; ++i) {
    // Above the last layer's keys and values only the rows whose logits are wanted go on: a row's
    // bits do not depend on its batch mates.
    const bool queries = i < last || !batch.logit_rows.empty();
    attend(batch, i, s, addend, queries);
    if (!queries) return;
    if (i == last && batch.logit_rows.size() < batch.tokens.size()) keep_rows(batch.logit_rows, s);
    finish_layer(weights_.layers[static_cast<std::size_t>(i)], s);
    addend = s.normed;
  }
  const Rows out = backend_.alloc(s.x.rows, spec_.vocab);
  const tensor::Product output[] = {{&weights_.output_matrix(), weights_.output.bias, out}};
  backend_.norm_matmuls(s.x, addend, weights_.output_norm, spec_.eps, s.normed, output);
  backend_.store(out, logits);
}

}  // namespace

Result<ModelInfo> check_decoder(const ModelFile& file, const DecoderSpec& spec) {
  const DecoderTensors tensors = TRY(check_decoder_tensors(file, spec));
  ModelInfo info;
  info.architecture = spec.architecture;
  info.name = model_name(file);
  info.vocab_size = spec.vocab;
  info.context_length = spec.context;
  info.embedding_length = spec.embedding;
  info.layers = static_cast<int>(spec.layers);
  info.parameters = tensors.parameters;
  info.weight_bytes = tensors.bytes;
  info.read_bytes_per_token = tensors.read_bytes_per_token;
  info.ops_per_token = 2 * tensors.matrix_elements;
  info.slow_types = slow_types(tensors.used);
  warn_unused(file, tensors.used, info.warnings);
  return info;
}

Result<std::unique_ptr<Model>> load_decoder(
    const ModelFile& file,
    const DecoderSpec& spec,
    ModelInfo info,
    tensor::Backend& backend,
    const LoadOptions& options
) {
  std::uint64_t done = 0;
  const auto total = static_cast<std::uint64_t>(info.weight_bytes);
  auto packed = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.on_progress) options.on_progress(done, total);
  };
  DecoderWeights weights = TRY(load_decoder_weights(file, spec, backend.pool(), packed));
  auto rope =
      make_rope_table(spec.rope, info.context_length, weights.rope_divisors, backend.pool());
  if (!rope) return fail(rope.error().code, "{}: {}", file.path(), rope.error().message);
  info.weight_bytes = packed_bytes(weights);
  return std::make_unique<Decoder>(
      spec, std::move(info), std::move(weights), rope.take(), backend, options.kv_type
  );
}

}  // namespace artery::model
