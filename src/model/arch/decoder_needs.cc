#include "model/arch/decoder_needs.h"

#include <algorithm>

#include "model/arch/decoder_tensors.h"
#include "model/arch/kv_groups.h"
#include "tensor/ops/kernel_table.h"

namespace artery::model {
namespace {

namespace ops = tensor::ops;

// Activations are copied once for each integer offset of the matrices that read them, and Q, K and
// V of a mix of types have at most so many (tensor/fast_linear.cc).
constexpr std::int64_t kOffsetsMax = 2;
// Query vectors that one thread takes through the pages at a time (tensor/fast_attention.cc).
constexpr int kVectorsMax = 96;
// Rows of weights unpacked by plain code, and odds and ends.
constexpr std::int64_t kThreadExtra = 128 << 10;

std::int64_t prepared_bytes(std::int64_t cols) {
  return cols / ops::kQuantBlock * static_cast<std::int64_t>(sizeof(ops::ActBlock));
}

bool has_type(const MemoryNeeds& needs, tensor::DType type) {
  return std::ranges::find(needs.weights, type, &WeightsOfType::type) != needs.weights.end();
}

// What Decoder::scratch allocates for a row, and what a mixture's experts do for all their rows.
std::int64_t scratch_values(const DecoderSpec& spec) {
  std::int64_t values = 2 * (spec.embedding + spec.q_rows() + spec.kv_rows());
  if (spec.fused) values += spec.q_rows() + 2 * spec.kv_rows();
  if (spec.post_norms) values += spec.embedding;
  const ExpertSpec& experts = spec.experts;
  if (experts.count == 0) return values + 2 * spec.feed_forward;
  const std::int64_t each = 2 * (spec.embedding + experts.feed_forward);
  return values + spec.embedding + 2 * experts.count + experts.router.used * each +
         2 * experts.shared_feed_forward;
}

// Columns of the widest rows that are multiplied.
std::int64_t widest_product(const DecoderSpec& spec) {
  const ExpertSpec& experts = spec.experts;
  if (experts.count == 0) return std::max({spec.embedding, spec.q_rows(), spec.feed_forward});
  const std::int64_t routed = experts.router.used * std::max(spec.embedding, experts.feed_forward);
  return std::max({spec.q_rows(), routed, experts.shared_feed_forward});
}

void add_forward(const DecoderSpec& spec, const NeedsWish& wish, MemoryNeeds& needs) {
  const std::int64_t element = wish.reference ? sizeof(double) : sizeof(float);
  const std::int64_t widest = widest_product(spec);
  needs.row_bytes = scratch_values(spec) * element;
  needs.logit_row_bytes =
      (scratch_values(spec) + spec.vocab) * element + spec.vocab * std::int64_t{sizeof(float)};
  // The sampler's copy of a row.
  needs.thread_bytes = spec.vocab * std::int64_t{sizeof(float)} + kThreadExtra;
  if (wish.reference) return;
  needs.row_bytes += std::max(prepared_bytes(widest), kOffsetsMax * prepared_bytes(spec.embedding));
  if (has_type(needs, tensor::DType::kBF16)) needs.row_bytes += widest * element;
  const int head_dim = static_cast<int>(spec.head_dim);
  const int group = static_cast<int>(spec.heads / spec.kv_heads);
  const int rows = std::max(1, kVectorsMax / group);
  needs.thread_bytes += ops::attention_scratch_floats(rows, group, head_dim) * element;
  needs.partial_bytes_per_position = spec.kv_heads * ops::partial_ints(1, group, head_dim) *
                                     std::int64_t{sizeof(std::int32_t)} / ops::kAttentionBlock;
}

}  // namespace

Result<MemoryNeeds> decoder_needs(
    const ModelFile& file, const DecoderSpec& spec, const NeedsWish& wish
) {
  const DecoderTensors tensors = TRY(check_decoder_tensors(file, spec));
  MemoryNeeds needs;
  add_weights(tensors.used, needs);
  const std::int64_t context =
      wish.context > 0 ? std::min(wish.context, spec.context) : spec.context;
  needs.kv = kv_layout_of(spec, wish.kv_type, context);
  const int rotated = spec.rope.dims + (spec.windowed.empty() ? 0 : spec.window_rope.dims);
  needs.table_bytes_per_position = rotated * std::int64_t{sizeof(double)};
  add_forward(spec, wish, needs);
  return needs;
}

}  // namespace artery::model
