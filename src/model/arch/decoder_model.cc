#include "model/arch/decoder_model.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace artery::model {
namespace {

using tensor::Rows;

tensor::Product product(const Linear& linear, const Rows& out) {
  return {&linear.weight, linear.bias, out};
}

tensor::AttentionBatch attention_batch(const ForwardBatch& batch, int group) {
  const PageTable& table = batch.page_tables[static_cast<std::size_t>(group)];
  return {
      .positions = batch.positions,
      .offsets = batch.offsets,
      .page_table = table.pages,
      .pages_max = table.pages_max,
      .first = table.first,
      .write_from = table.write_from
  };
}

// Which of LongRoPE's divisors decides the bits too.
std::string numerics_id(
    const DecoderSpec& spec,
    std::int64_t context,
    const tensor::Backend& backend,
    tensor::KvType type
) {
  const std::string id = fmt::format("{}/kv-{}", backend.numerics_class(), tensor::name(type));
  if (spec.rope.short_context == 0) return id;
  return id + (context > spec.rope.short_context ? "/rope-long" : "/rope-short");
}

}  // namespace

Decoder::Decoder(
    DecoderSpec spec,
    ModelInfo info,
    DecoderWeights weights,
    RopeTables ropes,
    tensor::Backend& backend,
    tensor::KvType kv_type
)
    : spec_(std::move(spec)),
      info_(std::move(info)),
      weights_(std::move(weights)),
      ropes_(std::move(ropes)),
      backend_(backend),
      places_(layer_places(spec_, info_.context_length)),
      layout_(kv_layout_of(spec_, kv_type, info_.context_length)) {
  layout_.numerics_id = numerics_id(spec_, info_.context_length, backend, kv_type);
}

// The engine's promises. Image rows, token types, taps and suffix rows belong to other families:
// the engine never passes them to a text model.
void Decoder::check(const ForwardBatch& batch, std::span<float> logits) const {
  CHECK(batch.positions.size() == batch.tokens.size());
  CHECK(batch.page_tables.size() == layout_.groups.size());
  CHECK(batch.kv.size() == layout_.groups.size());
  CHECK(
      logits.size() == batch.logit_rows.size() * static_cast<std::size_t>(spec_.vocab),
      "{} logits for {} rows",
      logits.size(),
      batch.logit_rows.size()
  );
}

Decoder::Scratch Decoder::scratch(std::int64_t rows) {
  Scratch s;
  s.x = backend_.alloc(rows, spec_.embedding);
  s.normed = backend_.alloc(rows, spec_.embedding);
  s.q = backend_.alloc(rows, spec_.q_rows());
  s.k = backend_.alloc(rows, spec_.kv_rows());
  s.v = backend_.alloc(rows, spec_.kv_rows());
  s.context = backend_.alloc(rows, spec_.q_rows());
  const ExpertSpec& experts = spec_.experts;
  const std::int64_t hidden = experts.count > 0 ? experts.shared_feed_forward : spec_.feed_forward;
  s.gate = backend_.alloc(rows, hidden);
  s.up = backend_.alloc(rows, hidden);
  if (experts.count == 0) return s;
  s.mixed = backend_.alloc(rows, spec_.embedding);
  s.router = backend_.alloc(rows, experts.count);
  s.shared = backend_.alloc(rows, 1);
  return s;
}

const tensor::RopeTable& Decoder::rope_of(int layer) const {
  return spec_.is_windowed(layer) && !ropes_.window.cos.empty() ? ropes_.window : ropes_.global;
}

// Adds `addend` to the residual stream. s.context = attention of layer `index`; only keys and
// values are made unless `queries`.
void Decoder::attend(const ForwardBatch& batch, int index, Scratch& s, Rows addend, bool queries) {
  const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerPlace place = places_[static_cast<std::size_t>(index)];
  const tensor::KvPages& kv = batch.kv[static_cast<std::size_t>(place.group)];
  const tensor::AttentionBatch where = attention_batch(batch, place.group);
  const tensor::RopeTable& rope = rope_of(index);
  const int head_dim = static_cast<int>(spec_.head_dim);
  const tensor::Product all[] = {
      product(layer.attn_k, s.k), product(layer.attn_v, s.v), product(layer.attn_q, s.q)
  };
  const auto products = std::span(all).first(queries ? 3 : 2);
  backend_.norm_matmuls(s.x, addend, layer.attn_norm, spec_.eps, s.normed, products);
  if (spec_.qk_norms) backend_.rms_norm_heads(s.k, head_dim, layer.attn_k_norm, spec_.eps);
  backend_.rope(s.k, head_dim, batch.positions, rope);
  backend_.kv_write(s.k, s.v, kv, place.layer, where);
  if (!queries) return;
  if (spec_.qk_norms) backend_.rms_norm_heads(s.q, head_dim, layer.attn_q_norm, spec_.eps);
  backend_.rope(s.q, head_dim, batch.positions, rope);
  const tensor::AttentionShape shape = {
      .scale = spec_.attention_scale,
      .window = place.group == 1 ? spec_.window : 0,
      .sinks = layer.attn_sinks
  };
  backend_.attention(s.q, kv, place.layer, where, shape, s.context);
}

// s.normed = what attention adds to the residual stream.
void Decoder::project(const DecoderLayer& layer, Scratch& s) {
  backend_.matmul(s.context, layer.attn_output.weight, layer.attn_output.bias, s.normed);
  if (spec_.post_norms) backend_.rms_norm(s.normed, layer.attn_post_norm, spec_.eps, s.normed);
}

// Adds s.normed to the residual stream; what the feed-forward adds to it is left to the next norm.
Rows Decoder::feed_forward(const DecoderLayer& layer, Scratch& s) {
  if (spec_.experts.count > 0) return mix_experts(layer, s);
  const tensor::Product wide[] = {product(layer.ffn_gate, s.gate), product(layer.ffn_up, s.up)};
  backend_.norm_matmuls(s.x, s.normed, layer.ffn_norm, spec_.eps, s.normed, wide);
  const tensor::Product down[] = {product(layer.ffn_down, s.normed)};
  backend_.gated_matmuls(spec_.gating, s.gate, s.up, down);
  if (spec_.post_norms) backend_.rms_norm(s.normed, layer.ffn_post_norm, spec_.eps, s.normed);
  return s.normed;
}

Rows Decoder::mix_experts(const DecoderLayer& layer, Scratch& s) {
  const tensor::Product all[] = {
      product(layer.router, s.router),
      product(layer.shared_router, s.shared),
      product(layer.ffn_gate, s.gate),
      product(layer.ffn_up, s.up)
  };
  const bool shared = spec_.experts.shared_feed_forward > 0;
  const auto products = std::span(all).first(shared ? 4 : 1);
  backend_.norm_matmuls(s.x, s.normed, layer.ffn_norm, spec_.eps, s.normed, products);
  const tensor::Routing routing = backend_.route(s.router, spec_.experts.router);
  const tensor::Experts experts = {
      .gate = layer.expert_gate,
      .up = layer.expert_up,
      .down = layer.expert_down,
      .gate_bias = layer.expert_gate_bias,
      .up_bias = layer.expert_up_bias,
      .down_bias = layer.expert_down_bias,
      .gating = spec_.gating
  };
  backend_.experts(s.normed, routing, experts, s.mixed);
  if (!shared) return s.mixed;
  const tensor::Product down[] = {product(layer.ffn_down, s.normed)};
  backend_.gated_matmuls(spec_.gating, s.gate, s.up, down);
  backend_.gate_rows(s.shared, s.normed);
  backend_.add(s.mixed, s.normed);
  return s.mixed;
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
  if (spec_.embedding_scale != 1) backend_.scale(s.x, spec_.embedding_scale);
  const int last = static_cast<int>(spec_.layers) - 1;
  Rows addend;
  for (int i = 0; i <= last; ++i) {
    const DecoderLayer& layer = weights_.layers[static_cast<std::size_t>(i)];
    // Above the last layer's keys and values only the rows whose logits are wanted go on: a row's
    // bits do not depend on its batch mates.
    const bool queries = i < last || !batch.logit_rows.empty();
    attend(batch, i, s, addend, queries);
    if (!queries) return;
    if (i == last && batch.logit_rows.size() < batch.tokens.size()) keep_rows(batch.logit_rows, s);
    project(layer, s);
    addend = feed_forward(layer, s);
  }
  const Rows out = backend_.alloc(s.x.rows, spec_.vocab);
  const tensor::Product output[] = {{&weights_.output_matrix(), weights_.output.bias, out}};
  backend_.norm_matmuls(s.x, addend, weights_.output_norm, spec_.eps, s.normed, output);
  backend_.store(out, logits);
}

}  // namespace artery::model
