#pragma once
// The kernels as one table of function pointers, filled by each build_<isa>.cc from the same .inc
// files. Plain pointers and counts only: this header goes into objects built with ISA flags, which
// must not emit standard-library code. Functions are pure, allocate nothing and may run on several
// threads at once over disjoint outputs. Nothing is assumed about alignment except of weight tiles
// (64 bytes). `Row` strides are in elements.
//
// Canonical arithmetic. A lane is one of 16; every ISA does the same IEEE float32 operations in the
// same order, so bits are equal. Reductions over lanes are a tree: lane i += lane i + 8, then 4, 2,
// 1.

#include <cstddef>
#include <cstdint>

namespace artery::tensor::ops {

constexpr int kLaneCount = 16;   // = kLanes = kPageTokens
constexpr int kQuantBlock = 32;  // activations per ActBlock
constexpr int kActBlock = 16;    // activations that share one int8 scale; divides kQuantBlock
constexpr int kActSubs = kQuantBlock / kActBlock;
constexpr int kAttentionBlock = 64;  // positions per partial attention result
constexpr int kAttentionPages = kAttentionBlock / kLaneCount;

// Why 16: with one scale per 32 the KL divergence of SmolLM2 Q4_1 from the float64 truth was 1.8
// times as large (1,234 prompt positions), above llama.cpp's, for 11 instead of 12 multiplies a
// block.

// kQuantBlock activations of one row as int8: x[i] ~ scale[i / kActBlock] * q[i], scale = the
// sub-block's absmax / 127, q rounded to nearest even. With s_j the sum of q over sub-block j:
// bias[j] = -offset * s_j (offset: the constant added to the weights to make them unsigned) and
// sum = fold over j of fma(scale[j], s_j, sum), from 0. A sub-block with an infinity or NaN has q =
// 0 and scale = NaN, which makes its row's products NaN.
struct ActBlock {
  std::int8_t q[kQuantBlock];
  float scale[kActSubs];
  std::int32_t bias[kActSubs];
  float sum;
};

constexpr std::int64_t kPanelBlocks = 16;  // blocks of 32 that are unpacked at once
constexpr std::int64_t kPanelValues = kPanelBlocks * kQuantBlock;
constexpr std::int64_t kPanelSubs = kPanelBlocks * kActSubs;
constexpr int kPanelTiles = 2;

// out[r * out_stride + n] for n in [n_begin, n_begin + 16 * tile_count), cut at n_end.
struct MatmulArgs {
  const std::byte* tiles;
  std::size_t tile_bytes;
  std::int64_t tile_count;
  std::int64_t n_begin;
  std::int64_t n_end;
  std::int64_t cols;
  const float* x;        // float kernels: [x_rows, cols]
  const ActBlock* act;   // int8 kernels: [x_rows, cols / kQuantBlock]
  const float* group_x;  // bfloat16 kernel: the rows in groups, as Bf16Kernels::pack writes them
  std::int64_t x_rows;
  const float* bias;  // [all weight rows] or null
  float* out;
  std::int64_t out_stride;
};

// A stretch of `blocks` <= kPanelBlocks blocks of `tiles` <= kPanelTiles tiles, unpacked: for each
// block 8 vectors of bytes, then its scales, then its minimums (matmul_int8.inc).
struct PanelArgs {
  const std::uint8_t* panel;
  std::size_t tile_stride;  // bytes between the tiles
  int tiles;
  std::int64_t blocks;
  const ActBlock* act;  // of the first row and the stretch's first block
  std::int64_t act_stride;
  std::int64_t x_rows;
  bool first;          // of its rows: sums start from 0, otherwise from `out`
  bool last;           // the bias is added
  std::int64_t lanes;  // columns from `out` on that exist
  const float* bias;   // of the first column, or null
  float* out;
  std::int64_t out_stride;
  const std::byte* next;    // weights to fetch ahead, or null
  std::size_t next_stride;  // between their tiles
  std::size_t next_step;    // bytes of one tile for one block
};

// 16 rows of weights as integers and scales (quant/integers.h): q [16][kPanelValues], scale and
// min [16][kPanelSubs], a scale and a minimum for each 16 values. `flip` is exclusive-ored to every
// four bytes.
struct RowIntegers {
  const std::uint8_t* q;
  const float* scale;
  const float* min;
  std::uint32_t flip;
};
// Bytes of a block in a panel of these.
constexpr std::size_t kRowPanelBytes = 512 + 2 * 64;
constexpr std::size_t kRowMinPanelBytes = 512 + 4 * 64;

// Where one layer and KV head of a page lies: page p starts at base + p * page_bytes, its K at +
// k_offset, its V at + v_offset; for the layout of each see KvGeometry.
struct KvArgs {
  std::byte* base;
  std::int64_t page_bytes;
  std::int64_t k_offset;
  std::int64_t v_offset;
  int head_dim;
};

// The query vectors of `rows` consecutive rows of one sequence and of the `group` heads of one KV
// head: vector i is row i / group, head i % group.
struct AttentionArgs {
  KvArgs kv;
  const std::int32_t* page_table;  // page of positions 16 p .. 16 p + 15
  const float* q;                  // first head of the group in the first row
  float* out;                      // the same place in the output
  std::int64_t stride;             // between rows of q and of out
  int group;
  int rows;
  std::int64_t position;  // of the first row; row i has position + i
  std::int64_t first;     // entries of earlier positions are gone, >= 0
  std::int64_t window;    // last positions that a row sees, > 0; beyond any position: all
  float scale;
  const float* sinks;  // [group], one more logit each, or null
  float* scratch;      // attention_scratch_floats(...)
  // Integer kernels only: a row's blocks may be computed apart, in any order, and folded
  // in the end. Not null: the results of `blocks` blocks from first_block on are kept there.
  std::int32_t* partials;  // partial_ints(...) a block, from the first that row 0 sees on
  std::int64_t first_block;
  std::int64_t blocks;
};
constexpr std::int64_t attention_scratch_floats(int rows, int group, int head_dim) {
  // The int16 kernels' is the larger one: state and factors in whole vectors, o, scores, weights,
  // and the query as integers.
  const std::int64_t vectors = std::int64_t{rows} * group;
  const std::int64_t dims = (head_dim + 15) / 16 * 16;
  return 6 * (vectors + 32) + vectors * (2 * dims + kAttentionBlock * 2);
}
constexpr std::int64_t partial_ints(int rows, int group, int head_dim) {
  return std::int64_t{rows} * group * ((head_dim + 15) / 16 * 16 + 16);
}

struct RopeArgs {
  float* head;       // [head_dim]
  const float* cos;  // [rotary_dims], one per rotated element
  const float* sin;  // [rotary_dims], negative for the first element of a pair
  int rotary_dims;
  bool halves;  // pairs (i, i + rotary_dims / 2), else (2 i, 2 i + 1)
};

// Products with bfloat16 weights, tiles [pair][16 rows][2], by the arithmetic of VDPBF16PS: x is
// rounded to bfloat16 (nearest even); over the pairs of a row, ascending, from 0:
// y = fma(w_1, x_1, y), then y = fma(w_0, x_0, y) (an odd row length is filled with a zero); then
// + bias. In all of it subnormal operands and results are zeros of
// their sign. Found by 20 million random triples on a Zen 4 processor, and what Intel's manual
// gives as the operation; the fma form repeats it with the flush bits of MXCSR.
struct Bf16Kernels {
  void (*matmul)(const MatmulArgs&);
  // `count` <= group_rows rows of `cols` values to group_floats(cols, count) floats of `out`.
  void (*pack)(const float* x, std::int64_t stride, std::int64_t cols, int count, float* out);
  int group_rows;   // rows [g, g + 1) * group_rows are one group, the last one may have fewer
  int pair_floats;  // of `out`, a row and pair
  std::int64_t group_floats(std::int64_t cols, std::int64_t count) const {
    return (cols + 1) / 2 * pair_floats * count;
  }
};

struct KernelTable {
  // F32 and F16 weights, interleaved [cols][16]. Four chains over k mod 4, a_j = fma(w, x_k, a_j)
  // from 0, k ascending; y = (a_0 + a_1) + (a_2 + a_3); then + bias.
  void (*matmul_f32)(const MatmulArgs&);
  void (*matmul_f16)(const MatmulArgs&);
  // F8_E4M3. With w the stored value / 256, in a block of 128 two chains over k mod 2, from 0, k
  // ascending: a_j = fma(w, x_k, a_j); then y = fma(scale, (a_0 + a_1) * 256, y); then + bias.
  void (*matmul_f8)(const MatmulArgs&);
  Bf16Kernels bf16;
  // Integer dot products within a sub-block are exact, i_j = sum of w q. Per block of 32,
  // ascending:
  //   Q4_0 Q5_0 Q8_0 IQ4_NL IQ4_XS MXFP4: t = i_0 * scale_0; t = fma(i_1, scale_1, t);
  //     y = fma(d, t, y); IQ4_XS: d = f32(d) * scale, one product; MXFP4: w doubled, d halved
  //   Q4_1 Q5_1: then y = fma(m, sum, y)
  //   Q4_K Q5_K: d = f32(d) * scale, m = (0 - f32(dmin)) * minimum, then as Q4_1
  //   Q6_K: d_j = f32(d) * scale_j; y = fma(d_j, i_j * scale_j, y) for j = 0, 1
  // Then + bias.
  void (*matmul_q4_0)(const MatmulArgs&);
  void (*matmul_q4_1)(const MatmulArgs&);
  void (*matmul_q5_0)(const MatmulArgs&);
  void (*matmul_q5_1)(const MatmulArgs&);
  void (*matmul_q8_0)(const MatmulArgs&);
  void (*matmul_q4_k)(const MatmulArgs&);
  void (*matmul_q5_k)(const MatmulArgs&);
  void (*matmul_q6_k)(const MatmulArgs&);
  void (*matmul_iq4_nl)(const MatmulArgs&);
  void (*matmul_iq4_xs)(const MatmulArgs&);
  void (*matmul_mxfp4)(const MatmulArgs&);
  // All other types: w and d_j of each 16 values as quant/integers.h gives them, the sum as for
  // Q6_K; with minimums (Q2_K) y = fma(m_j, bias_j * scale_j, y) follows each j, for offset 1.
  void (*panel_of_rows)(const RowIntegers&, std::int64_t blocks, std::uint8_t* panel);
  void (*panel_product)(const PanelArgs&);
  void (*panel_of_rows_min)(const RowIntegers&, std::int64_t blocks, std::uint8_t* panel);
  void (*panel_product_min)(const PanelArgs&);
  // One row of `blocks` * kQuantBlock activations.
  void (*quantize)(const float* x, std::int64_t blocks, std::int32_t offset, ActBlock* out);

  // out = (x * (1 / sqrt(ss / n + eps))) * weight; ss: lane i sums x^2 of elements i, i + 16, ...
  // by fma, then the tree.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::int64_t n, float* out);
  // out = g / (1 + exp(-g)) * up
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
  // out = g / (1 + exp(g * t)) * up, t = fma(g * g, -b, -a): 1 + tanh(z) = 2 / (1 + exp(-2 z)) with
  // z = sqrt(2 / pi) (g + 0.044715 g^3); a = 2 sqrt(2 / pi), b = 0.044715 a
  void (*geglu)(const float* gate, const float* up, std::int64_t n, float* out);
  // g = min(gate, 7), u = clamp(up, -7, 7): out = g / (1 + exp(g * -1.702)) * (u + 1)
  void (*clamped_glu)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*add)(float* x, const float* y, std::int64_t n);
  void (*scale)(float* x, float factor, std::int64_t n);  // x *= factor
  // out = fold over the `count` rows, ascending, of sum = fma(weight, row, sum), from 0
  void (*mix)(
      const float* const* rows, const float* weights, int count, std::int64_t n, float* out
  );
  // x_i = fma(x_i, cos_i, x_partner * sin_i)
  void (*rope)(const RopeArgs&);
  void (*exp)(const float* x, std::int64_t n, float* out);

  // One row's k and v [head_dim] into lane `lane` of page `page`; f16 rounds to nearest even.
  void (*kv_write_f16)(const KvArgs&, std::int64_t page, int lane, const float* k, const float* v);
  void (*kv_write_f32)(const KvArgs&, std::int64_t page, int lane, const float* k, const float* v);
  // See attention.inc.
  void (*attention_f16)(const AttentionArgs&);
  void (*attention_f32)(const AttentionArgs&);
  // See attention_int16.inc. fold_words turns the kept results of all blocks into the output.
  void (*kv_write_i16)(const KvArgs&, std::int64_t page, int lane, const float* k, const float* v);
  void (*kv_write_i16v8)(
      const KvArgs&, std::int64_t page, int lane, const float* k, const float* v
  );
  void (*attention_i16)(const AttentionArgs&);
  void (*attention_i16v8)(const AttentionArgs&);
  void (*fold_words)(const AttentionArgs&);
};

}  // namespace artery::tensor::ops

namespace artery::tensor::ops::scalar {
extern const KernelTable kTable;
}
namespace artery::tensor::ops::avx2 {
extern const KernelTable kTable;
}
namespace artery::tensor::ops::avx512 {
extern const KernelTable kTable;
}
namespace artery::tensor::ops::avx512_bf16 {
extern const Bf16Kernels kTable;  // instead of avx512's where VDPBF16PS is at full rate
}
