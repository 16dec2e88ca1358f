#pragma once
// The seam between models and arithmetic. A model calls these verbs on whole rows of a flat batch;
// a Backend runs them on its ComputePool. Two implementations: the fast one (float32 activations,
// SIMD by run-time dispatch) and the reference one (double activations and sums, plain loops),
// `--numerics fast|reference`; CUDA later.
//
// Contract of every verb (design "Numerics"): the bits of an output row depend only on that row's
// input and, for attention, on that sequence's own history. Batch size, batch mates, chunking,
// thread count and ISA change nothing. Called by one thread at a time (the engine thread). No verb
// fails: shapes are checked by CHECK, everything that can be wrong in a file was refused at load.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/chain_key.h"
#include "base/ids.h"
#include "tensor/compute_pool.h"
#include "tensor/isa.h"
#include "tensor/weights.h"

namespace artery::tensor {

// A row-major matrix of activations, dense, 64-byte aligned. The element type is the backend's own
// (float32 for fast, double for reference); only the backend looks inside.
struct Rows {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// kI16, kI16V8: integers with one float32 scale per position and head for K and V each, K of 16
// bits, V of 16 or 8; fast numerics multiply them as integers. kF64: reference numerics only.
enum class KvType : std::uint8_t { kF16, kF32, kF64, kI16, kI16V8 };
constexpr bool is_integer(KvType type) { return type == KvType::kI16 || type == KvType::kI16V8; }
std::string_view name(KvType type);   // "f16", "int16"
std::int64_t key_bytes(KvType type);  // of one value, scales not counted
std::int64_t value_bytes(KvType type);

// One KV group's memory: `pages` pages of `page_bytes`. Within a page, layer l of the group starts
// at l * layer_bytes: the K of all heads, then the V of all heads. So lane i of a K vector is
// position i of the page. Per head:
//   kF16 .. kF64: K [head_dim][16 positions]; V [16 positions][head_dim]
//   integers: K [head_dim / 2][16 positions][2 dimensions], scales [16]; V [16 / n][head_dim][n
//             positions], n = 2 (16 bits) or 4 (8 bits), scales [16]; an odd head_dim is filled up
//             in K
struct KvGeometry {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  KvType type = KvType::kF16;
  std::int64_t k_bytes() const {  // of one head in a page
    const int dims = is_integer(type) ? head_dim + head_dim % 2 : head_dim;
    return dims * kPageTokens * key_bytes(type) + scale_bytes();
  }
  std::int64_t v_bytes() const {
    return std::int64_t{head_dim} * kPageTokens * value_bytes(type) + scale_bytes();
  }
  std::int64_t scale_bytes() const { return is_integer(type) ? kPageTokens * 4 : 0; }
  std::int64_t k_offset(int layer, int head) const {
    return layer * layer_bytes() + head * k_bytes();
  }
  std::int64_t v_offset(int layer, int head) const {
    return layer * layer_bytes() + kv_heads * k_bytes() + head * v_bytes();
  }
  std::int64_t layer_bytes() const { return kv_heads * (k_bytes() + v_bytes()); }
  std::int64_t page_bytes() const { return layers * layer_bytes(); }
};
struct KvPages {
  std::byte* base = nullptr;
  KvGeometry geometry;
};

// Which rows belong to which sequence and where their history lies. All spans outlive the call.
struct AttentionBatch {
  std::span<const Position>
      positions;  // [rows] absolute, ascending and contiguous within a sequence
  std::span<const std::int32_t> offsets;  // [sequences + 1] first row of each sequence
  std::span<const PageId>
      page_table;  // [sequences, pages_max]: page of positions 16 p .. 16 p + 15
  std::int64_t pages_max = 0;
  // [sequences], empty: 0. Entries of earlier positions are gone (a window group) and never read;
  // their pages may be kNoPage.
  std::span<const Position> first = {};
  // [sequences], empty: 0. kv_write leaves the entries of earlier positions as they are: rows that
  // run again only to rebuild windows.
  std::span<const Position> write_from = {};
};

// How a layer attends, besides what is in the batch.
struct AttentionShape {
  float scale = 1;  // multiplies q.k
  // A query sees this many last positions, its own among them; 0: all. (Beltagy et al. 2020,
  // section 3.1; Mistral 7B, section 2)
  int window = 0;
  // [heads] or empty: one more logit per head that takes part in the softmax and has no value
  // (gpt-oss model card, section 2.2). Not scaled.
  std::span<const float> sinks = {};
};

// What the gate of a feed-forward does: out = f(gate) * up.
enum class Gating : std::uint8_t {
  kSilu,      // SwiGLU (Shazeer 2020)
  kGeluTanh,  // GeGLU, GELU in its tanh form (Gemma)
  kClamped,   // gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7); out = g sigmoid(1.702 g) (u + 1)
};

// How a row's experts are chosen from its router logits: the `used` largest (ties: the lower
// index), with weights softmax over all logits or over the chosen ones.
struct RouterShape {
  int used = 0;
  bool softmax_over_chosen = false;  // Mixtral, gpt-oss; else over all (Qwen3-MoE, Qwen2-MoE)
  bool renormalize = false;          // over all: divide the chosen weights by their sum
};
// Per row `used` experts in ascending order and their weights. Lives as long as the scratch.
struct Routing {
  int used = 0;
  std::span<std::int32_t> experts;  // [rows, used]
  Rows weights;                     // [rows, used]
};
// The matrices of a layer's experts: gate, up [feed_forward, embedding] and down [embedding,
// feed_forward] each. Biases empty, or one after the other for all experts.
struct Experts {
  std::span<const WeightMatrix> gate, up, down;
  std::span<const float> gate_bias, up_bias, down_bias;
  Gating gating = Gating::kSilu;
};

enum class RopeStyle {
  kAdjacentPairs,
  kHalves
};  // Llama files rotate (2i, 2i+1); Qwen, Gemma rotate (i, i + d/2)

// cos/sin of every position, float64, made once at load from the model's RoPE parameters.
struct RopeTable {
  RopeStyle style = RopeStyle::kAdjacentPairs;
  int rotary_dims = 0;      // first dims of a head that are rotated; even
  std::vector<double> cos;  // [positions, rotary_dims / 2]
  std::vector<double> sin;
};

// One of several matrices that multiply the same rows: out = x weight^T + bias.
struct Product {
  const WeightMatrix* weight;
  std::span<const float> bias;  // empty or [weight->rows()]
  Rows out;                     // must not overlap the rows read or another product's out
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Goes into NumericsId: "fast-2" or "reference-1" (a class of bits, not an ISA: all ISAs give
  // equal bits).
  virtual std::string numerics_class() const = 0;
  virtual Isa isa() const = 0;
  virtual ComputePool& pool() = 0;

  // Scratch for one forward: bump allocation, all freed by reset(). Contents start undefined.
  virtual Rows alloc(std::int64_t rows, std::int64_t cols) = 0;
  virtual void reset() = 0;

  virtual void embed(const WeightMatrix& table, std::span<const TokenId> tokens, Rows out) = 0;
  virtual void load(std::span<const float> values, Rows out) = 0;  // out[i] = values[i]
  virtual void store(Rows x, std::span<float> out) = 0;            // out[i] = x[i] as float32
  virtual void gather(
      Rows x, std::span<const std::int32_t> rows, Rows out
  ) = 0;  // out[r] = x[rows[r]]
  virtual void copy(Rows x, Rows out) = 0;

  // out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight. out may be x.
  virtual void rms_norm(Rows x, std::span<const float> weight, float eps, Rows out) = 0;
  // The same over each `head_dim` slice of a row (q/k norms).
  virtual void rms_norm_heads(Rows x, int head_dim, std::span<const float> weight, float eps) = 0;
  // out[r, n] = sum_k x[r, k] w[n, k] (+ bias[n]). bias empty or [w.rows()]. out must not overlap
  // x.
  virtual void matmul(Rows x, const WeightMatrix& w, std::span<const float> bias, Rows out) = 0;

  // Chains of the verbs here in one, which saves passes over memory and meetings of the threads;
  // the bits are those of the chain.
  virtual void matmuls(Rows x, std::span<const Product> products) {
    for (const Product& p : products) matmul(x, *p.weight, p.bias, p.out);
  }
  // x += addend (unless its data is null); normed = rms_norm(x); the products of normed. addend
  // may be normed.
  virtual void norm_matmuls(
      Rows x,
      Rows addend,
      std::span<const float> weight,
      float eps,
      Rows normed,
      std::span<const Product> products
  ) {
    if (addend.data != nullptr) add(x, addend);
    rms_norm(x, weight, eps, normed);
    matmuls(normed, products);
  }
  // gate = gated(gate, up); the products of gate.
  virtual void gated_matmuls(Gating gating, Rows gate, Rows up, std::span<const Product> products) {
    gated(gating, gate, up, gate);
    matmuls(gate, products);
  }

  // Rotates each head of x [rows, heads * head_dim] in place.
  virtual void rope(
      Rows x, int head_dim, std::span<const Position> positions, const RopeTable& table
  ) = 0;
  // Writes k and v rows [rows, kv_heads * head_dim] of layer `layer` into the pages of their
  // positions.
  virtual void kv_write(
      Rows k, Rows v, const KvPages& kv, int layer, const AttentionBatch& batch
  ) = 0;
  // Causal attention of q [rows, heads * head_dim] over the positions from the window's first (and
  // the batch's `first`) to its own (the rows' own k, v already written). One partial result per
  // block of absolute positions, one left fold over the blocks that have a visible position, the
  // sink last: where few rows see much, the partial results are computed in parallel.
  virtual void attention(
      Rows q,
      const KvPages& kv,
      int layer,
      const AttentionBatch& batch,
      const AttentionShape& shape,
      Rows out
  ) = 0;
  // out = f(gate) * up. out may be gate.
  virtual void gated(Gating gating, Rows gate, Rows up, Rows out) = 0;
  virtual void add(Rows x, Rows y) = 0;          // x += y
  virtual void scale(Rows x, float factor) = 0;  // x *= factor
  // x[r] *= sigmoid(gate[r, 0]) (the gate of Qwen2-MoE's shared expert). gate [rows, 1].
  virtual void gate_rows(Rows gate, Rows x) = 0;

  // logits [rows, experts]. The routing is in this forward's scratch.
  virtual Routing route(Rows logits, const RouterShape& shape) = 0;
  // out[r] = sum over the row's experts e, in ascending order, of weight * down_e(gated(gate_e(x),
  // up_e(x))). out must not overlap x.
  virtual void experts(Rows x, const Routing& routing, const Experts& experts, Rows out) = 0;
};

// `pool` outlives the backend. isa is ignored by the reference backend.
std::unique_ptr<Backend> make_fast_backend(ComputePool& pool, Isa isa);
std::unique_ptr<Backend> make_reference_backend(ComputePool& pool);

}  // namespace artery::tensor
