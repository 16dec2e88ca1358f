// Mixtures of experts of the fast backend.

#include <cmath>

#include "tensor/fast_backend.h"
#include "tensor/ops/expert_checks.h"

namespace artery::tensor {
namespace {

constexpr std::int64_t kRowsPerChunk = 16;  // of router logits

// Whether logit a goes before b: NaN after every number.
bool is_larger(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

// The `used` largest logits, ties to the lower index, in ascending order of index.
void choose(std::span<const float> logits, std::span<std::int32_t> chosen) {
  std::size_t count = 0;  // chosen so far, the best first
  for (std::size_t i = 0; i < logits.size(); ++i) {
    std::size_t at = count;
    while (at > 0 && is_larger(logits[i], logits[static_cast<std::size_t>(chosen[at - 1])])) --at;
    if (at == chosen.size()) continue;
    count = std::min(count + 1, chosen.size());
    for (std::size_t j = count - 1; j > at; --j) chosen[j] = chosen[j - 1];
    chosen[at] = static_cast<std::int32_t>(i);
  }
  std::ranges::sort(chosen);
}

// In double, ascending: many small shares beside a large one would be lost in float32.
float sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return static_cast<float>(sum);
}

// In place.
void softmax(const KernelTable& k, std::span<float> x) {
  float top = -HUGE_VALF;
  for (const float v : x) top = is_larger(v, top) ? v : top;
  for (float& v : x) v -= top;
  k.exp(x.data(), std::ssize(x), x.data());
  const float sum = sum_of(x);
  for (float& v : x) v /= sum;
}

// `scratch`: as many as logits.
void weigh(
    const KernelTable& k,
    std::span<const float> logits,
    std::span<const std::int32_t> chosen,
    const RouterShape& shape,
    std::span<float> scratch,
    std::span<float> weights
) {
  std::ranges::copy(logits, scratch.begin());
  if (!shape.softmax_over_chosen) softmax(k, scratch);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    weights[i] = scratch[static_cast<std::size_t>(chosen[i])];
  }
  if (shape.softmax_over_chosen) return softmax(k, weights);
  if (!shape.renormalize) return;
  const float sum = sum_of(weights);
  for (float& w : weights) w /= sum;
}

}  // namespace

Routing FastBackend::route(Rows logits, const RouterShape& shape) {
  ops::check_router(logits, shape);
  const auto used = static_cast<std::size_t>(shape.used);
  const auto count = static_cast<std::size_t>(logits.cols);
  Routing routing;
  routing.used = shape.used;
  routing.weights = alloc(logits.rows, shape.used);
  const std::size_t chosen = used * static_cast<std::size_t>(logits.rows);
  routing.experts = {
      static_cast<std::int32_t*>(arena_.alloc(chosen * sizeof(std::int32_t))), chosen
  };
  float* scratch = per_thread_.get(static_cast<std::size_t>(pool_.threads()) * count);
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    const std::span own(scratch + static_cast<std::size_t>(thread) * count, count);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::span<const float> row(row_of(logits, r), count);
      const auto mine = routing.experts.subspan(static_cast<std::size_t>(r) * used, used);
      choose(row, mine);
      weigh(k_, row, mine, shape, own, {row_of(routing.weights, r), used});
    }
  };
  pool_.parallel_for(logits.rows, kRowsPerChunk, std::ref(body));
  return routing;
}

// Some rows of one expert's hidden columns, by one thread.
struct FastBackend::Stretch {
  const Mixture::Part* part;
  std::int64_t begin, end;  // tiles of gate and up
  std::int64_t column, columns;
  std::int64_t hidden;  // columns of the whole matrix
  int thread;
};

// Counting sort: a row's experts ascend, and so do the rows of an expert.
void FastBackend::sort_by_expert(const Routing& routing, std::size_t experts) {
  Mixture& m = mixture_;
  const std::size_t slots = routing.experts.size();
  std::vector<std::int32_t>& next = m.next;
  next.assign(experts, 0);
  for (const std::int32_t e : routing.experts) ++next[static_cast<std::size_t>(e)];
  m.parts.clear();
  m.most_rows = 0;
  std::int32_t first = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::int32_t rows = next[e];
    next[e] = first;
    if (rows == 0) continue;
    m.parts.push_back({static_cast<std::int32_t>(e), first, rows});
    m.most_rows = std::max<std::int64_t>(m.most_rows, rows);
    first += rows;
  }
  m.row.resize(slots);
  m.slot.resize(slots);
  for (std::size_t i = 0; i < slots; ++i) {
    const std::int32_t slot = next[static_cast<std::size_t>(routing.experts[i])]++;
    m.row[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(i) / routing.used;
    m.slot[i] = slot;
  }
}

// Each row rounded once for every offset, then copied to its slots, so that the rows of an expert
// lie together.
void FastBackend::round_slots(const Rows& x) {
  Mixture& m = mixture_;
  const std::int64_t blocks = x.cols / ops::kQuantBlock;
  const auto slots = std::ssize(m.row);
  const std::int64_t used = slots / x.rows;
  const std::int64_t all = (x.rows + slots) * blocks;
  ops::ActBlock* act = m.act.get(m.offsets.size() * static_cast<std::size_t>(all));
  const auto bytes = static_cast<std::size_t>(blocks) * sizeof(ops::ActBlock);
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::size_t i = 0; i < m.offsets.size(); ++i) {
        ops::ActBlock* rows = act + static_cast<std::int64_t>(i) * all;
        k_.quantize(row_of(x, r), blocks, m.offsets[i], rows + r * blocks);
        if (m.most_rows == 1) continue;  // read where they are
        for (std::int64_t j = r * used; j < (r + 1) * used; ++j) {
          const std::int64_t slot = m.slot[static_cast<std::size_t>(j)];
          std::memcpy(rows + (x.rows + slot) * blocks, rows + r * blocks, bytes);
        }
      }
    }
  };
  const std::int64_t grain = kSerialValues / std::max<std::int64_t>(1, x.cols);
  pool_.parallel_for(x.rows, std::max<std::int64_t>(1, grain), std::ref(body));
}

void FastBackend::gather_slots(const Rows& x, bool packs) {
  Mixture& m = mixture_;
  const auto slots = std::ssize(m.row);
  float* rows = m.x.get(static_cast<std::size_t>(slots * x.cols));
  float* groups =
      packs ? m.groups.get(static_cast<std::size_t>(k_.bf16.group_floats(x.cols, slots))) : nullptr;
  const std::int64_t most = k_.bf16.group_rows;
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      const Mixture::Part& part = m.parts[static_cast<std::size_t>(p)];
      for (std::int64_t s = part.first; s < part.first + part.rows; ++s) {
        std::memcpy(rows + s * x.cols, row_of(x, m.row[static_cast<std::size_t>(s)]), row_size(x));
      }
      for (std::int64_t r = 0; packs && r < part.rows; r += most) {
        const auto count = static_cast<int>(std::min(most, part.rows - r));
        const std::int64_t at = part.first + r;
        float* to = groups + k_.bf16.group_floats(x.cols, at);
        k_.bf16.pack(rows + at * x.cols, x.cols, x.cols, count, to);
      }
    }
  };
  pool_.parallel_for(std::ssize(m.parts), 1, std::ref(body));
}

// The rows as the kernels of all gates and ups in use read them.
void FastBackend::prepare_inputs(const Rows& x, const Experts& experts) {
  Mixture& m = mixture_;
  m.offsets.clear();
  bool gathers = false;
  bool packs = false;
  for (const Mixture::Part& part : m.parts) {
    const auto e = static_cast<std::size_t>(part.expert);
    for (const DType type : {experts.gate[e].type(), experts.up[e].type()}) {
      const MatmulPlan plan = plan_of(type);
      gathers = gathers || !plan.int8;
      packs = packs || type == DType::kBF16;
      if (plan.int8 && std::ranges::find(m.offsets, plan.offset) == m.offsets.end()) {
        m.offsets.push_back(plan.offset);
      }
    }
  }
  if (!m.offsets.empty()) round_slots(x);
  if (gathers) gather_slots(x, packs);
}

MatmulArgs FastBackend::input_args(const Rows& x, const Mixture::Part& part, DType type) const {
  const Mixture& m = mixture_;
  const MatmulPlan plan = plan_of(type);
  MatmulArgs args = {};
  args.x_rows = part.rows;
  args.cols = x.cols;
  if (plan.int8) {
    const std::int64_t blocks = x.cols / ops::kQuantBlock;
    const auto slots = std::ssize(m.row);
    const auto which = std::ranges::find(m.offsets, plan.offset) - m.offsets.begin();
    const std::int64_t at =
        m.most_rows == 1 ? m.row[static_cast<std::size_t>(part.first)] : x.rows + part.first;
    args.act = m.act.data() + (which * (x.rows + slots) + at) * blocks;
  } else if (type == DType::kBF16) {
    args.group_x = m.groups.data() + k_.bf16.group_floats(x.cols, part.first);
  } else {
    args.x = m.x.data() + part.first * x.cols;
  }
  return args;
}

MatmulArgs FastBackend::hidden_args(std::int64_t hidden, const Mixture::Part& part, DType type)
    const {
  const Mixture& m = mixture_;
  MatmulArgs args = {};
  args.x_rows = part.rows;
  args.cols = hidden;
  if (plan_of(type).int8) {
    args.act = m.hidden_act.data() + part.first * (hidden / ops::kQuantBlock);
  } else if (type == DType::kBF16) {
    args.group_x = m.hidden_groups.data() + k_.bf16.group_floats(hidden, part.first);
  } else {
    args.x = m.hidden.data() + part.first * hidden;
  }
  return args;
}

// Tiles [begin, end) of w; `begin` is even. args.out and args.bias are of the first one.
void FastBackend::multiply_tiles(
    const WeightMatrix& w, MatmulArgs args, std::int64_t begin, std::int64_t end, int thread
) {
  const MatmulPlan plan = plan_of(w.type());
  if (plan.kernel == nullptr) {
    args.n_begin = begin * kLanes;
    RowPanel& own = row_panels_.data()[thread];
    for (std::int64_t t = begin; t < end; t += 2) matmul_row_pair(w, args, t / 2, own);
    return;
  }
  args.tiles = w.tile(begin);
  args.tile_bytes = w.tile_bytes();
  args.tile_count = end - begin;
  args.n_end = w.rows() - begin * kLanes;
  plan.kernel(args);
}

// What the down matrix reads of hidden rows [part.rows, at.columns], which lie `at.columns` apart.
void FastBackend::keep_hidden(const WeightMatrix& down, const Stretch& at, float* rows) {
  Mixture& m = mixture_;
  const MatmulPlan plan = plan_of(down.type());
  const std::int64_t first = at.part->first;
  if (down.type() == DType::kBF16) {
    const std::int64_t most = k_.bf16.group_rows;
    for (std::int64_t r = 0; r < at.part->rows; r += most) {
      const auto count = static_cast<int>(std::min(most, at.part->rows - r));
      float* group = m.hidden_groups.data() + k_.bf16.group_floats(at.hidden, first + r);
      float* to = group + k_.bf16.group_floats(at.column, count);
      k_.bf16.pack(rows + r * at.columns, at.columns, at.columns, count, to);
    }
    return;
  }
  for (std::int64_t r = 0; r < at.part->rows; ++r) {
    const float* from = rows + r * at.columns;
    if (plan.int8) {
      const std::int64_t blocks = at.hidden / ops::kQuantBlock;
      ops::ActBlock* to = m.hidden_act.data() + (first + r) * blocks;
      k_.quantize(
          from, at.columns / ops::kQuantBlock, plan.offset, to + at.column / ops::kQuantBlock
      );
    } else {
      float* to = m.hidden.data() + (first + r) * at.hidden + at.column;
      std::memcpy(to, from, static_cast<std::size_t>(at.columns) * sizeof(float));
    }
  }
}

// Gate, up, their gating and its rounding for some hidden columns, which stay in the cache.
void FastBackend::hidden_stretch(const Rows& x, const Experts& experts, const Stretch& at) {
  const auto e = static_cast<std::size_t>(at.part->expert);
  const std::int64_t size = at.part->rows * at.columns;
  float* gate = mixture_.halves.data() + at.thread * mixture_.halves_stride;
  float* up = gate + size;
  const auto multiply_half = [&](const WeightMatrix& w, std::span<const float> bias, float* out) {
    MatmulArgs args = input_args(x, *at.part, w.type());
    const auto mine = ops::bias_of(bias, e, at.hidden);
    args.bias = mine.empty() ? nullptr : mine.data() + at.column;
    args.out = out;
    args.out_stride = at.columns;
    multiply_tiles(w, args, at.begin, at.end, at.thread);
  };
  multiply_half(experts.gate[e], experts.gate_bias, gate);
  multiply_half(experts.up[e], experts.up_bias, up);
  gated_kernel(experts.gating)(gate, up, size, gate);
  keep_hidden(experts.down[e], at, gate);
}

void FastBackend::run_hidden(const Rows& x, const Experts& experts) {
  constexpr std::int64_t kFloats = 32 << 10;  // of gate, some cache of the second level
  constexpr std::int64_t kFewestTiles = 8;
  Mixture& m = mixture_;
  const WeightMatrix& gate = experts.gate[static_cast<std::size_t>(m.parts[0].expert)];
  const std::int64_t hidden = gate.rows();
  const std::int64_t pairs = (gate.tiles() + 1) / 2;
  m.halves_stride = 2 * std::max(kFloats, kFewestTiles * kLanes * m.most_rows);
  m.halves.get(static_cast<std::size_t>(pool_.threads() * m.halves_stride));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t u = begin; u < end;) {
      const Mixture::Part& part = m.parts[static_cast<std::size_t>(u / pairs)];
      const std::int64_t stop = std::min(end, (u / pairs + 1) * pairs);
      const std::int64_t last = std::min(gate.tiles(), 2 * (u % pairs + stop - u));
      const std::int64_t fitting = kFloats / (kLanes * part.rows) / 2 * 2;
      const std::int64_t step = std::max(kFewestTiles, fitting);
      for (std::int64_t t = 2 * (u % pairs); t < last; t += step) {
        const std::int64_t tiles_end = std::min(last, t + step);
        const std::int64_t column = t * kLanes;
        const std::int64_t columns = std::min(hidden, tiles_end * kLanes) - column;
        hidden_stretch(x, experts, {&part, t, tiles_end, column, columns, hidden, thread});
      }
      u = stop;
    }
  };
  std::int64_t bytes = 0;
  for (const Mixture::Part& part : m.parts) {
    const auto e = static_cast<std::size_t>(part.expert);
    bytes += static_cast<std::int64_t>(experts.gate[e].bytes() + experts.up[e].bytes());
  }
  run_units(std::ssize(m.parts) * pairs, bytes, m.rows_of_a_part(), std::ref(body));
}

// Columns [first, last) of the slots' results; both multiples of a pair of tiles, or the end.
void FastBackend::run_down(const Experts& experts, std::int64_t first, std::int64_t last) {
  Mixture& m = mixture_;
  const WeightMatrix& down = experts.down[static_cast<std::size_t>(m.parts[0].expert)];
  const std::int64_t hidden = down.cols();
  const std::int64_t tiles_begin = first / kLanes;
  const std::int64_t tiles_end = std::min(down.tiles(), (last + kLanes - 1) / kLanes);
  const std::int64_t pairs = (tiles_end - tiles_begin + 1) / 2;
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t u = begin; u < end;) {
      const Mixture::Part& part = m.parts[static_cast<std::size_t>(u / pairs)];
      const std::int64_t stop = std::min(end, (u / pairs + 1) * pairs);
      const auto e = static_cast<std::size_t>(part.expert);
      const WeightMatrix& w = experts.down[e];
      const std::int64_t t = tiles_begin + 2 * (u % pairs);
      MatmulArgs args = hidden_args(hidden, part, w.type());
      const auto bias = ops::bias_of(experts.down_bias, e, w.rows());
      args.bias = bias.empty() ? nullptr : bias.data() + t * kLanes;
      args.out = m.down.data() + part.first * (last - first) + t * kLanes - first;
      args.out_stride = last - first;
      multiply_tiles(w, args, t, std::min(tiles_end, t + 2 * (stop - u)), thread);
      u = stop;
    }
  };
  const std::int64_t tiles = std::ssize(m.parts) * (tiles_end - tiles_begin);
  const std::int64_t bytes = tiles * static_cast<std::int64_t>(down.tile_bytes());
  run_units(std::ssize(m.parts) * pairs, bytes, m.rows_of_a_part(), std::ref(body));
}

// The same columns of `out`.
void FastBackend::mix(const Routing& routing, std::int64_t first, std::int64_t last, Rows out) {
  Mixture& m = mixture_;
  const std::int64_t used = routing.used;
  const std::int64_t columns = last - first;
  const float** all = m.pointers.get(static_cast<std::size_t>(pool_.threads() * used));
  const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
    const float** rows = all + thread * used;
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t i = 0; i < used; ++i) {
        rows[i] = m.down.data() + m.slot[static_cast<std::size_t>(r * used + i)] * columns;
      }
      k_.mix(rows, row_of(routing.weights, r), routing.used, columns, row_of(out, r) + first);
    }
  };
  const std::int64_t grain = kSerialValues / (columns * used);
  pool_.parallel_for(out.rows, std::max<std::int64_t>(1, grain), std::ref(body));
}

void FastBackend::experts(Rows x, const Routing& routing, const Experts& experts, Rows out) {
  ops::check_experts(x, routing, experts, out);
  if (x.rows == 0 || x.cols == 0) return;
  Mixture& m = mixture_;
  sort_by_expert(routing, experts.gate.size());
  const auto slots = std::ssize(m.row);
  const std::int64_t hidden = experts.gate[0].rows();
  prepare_inputs(x, experts);
  bool floats_too = false;
  bool packs = false;
  bool by_rows = false;
  for (const Mixture::Part& part : m.parts) {
    const auto e = static_cast<std::size_t>(part.expert);
    const DType type = experts.down[e].type();
    packs = packs || type == DType::kBF16;
    floats_too = floats_too || !plan_of(type).int8;
    for (const WeightMatrix* w : {&experts.gate[e], &experts.up[e], &experts.down[e]}) {
      by_rows = by_rows || plan_of(w->type()).kernel == nullptr;
    }
  }
  if (by_rows) row_panels_.get(static_cast<std::size_t>(pool_.threads()));
  m.hidden_act.get(static_cast<std::size_t>(slots * (hidden / ops::kQuantBlock)));
  if (floats_too) m.hidden.get(static_cast<std::size_t>(slots * hidden));
  if (packs) m.hidden_groups.get(static_cast<std::size_t>(k_.bf16.group_floats(hidden, slots)));
  run_hidden(x, experts);
  // So many columns at a time that the slots' results stay in the last-level cache.
  constexpr std::int64_t kFloats = 1 << 20;
  constexpr std::int64_t kPair = 2 * kLanes;
  const std::int64_t fitting = std::max<std::int64_t>(128, kFloats / slots) / kPair * kPair;
  const std::int64_t step = std::min(x.cols, fitting);
  m.down.get(static_cast<std::size_t>(slots * step));
  for (std::int64_t first = 0; first < x.cols; first += step) {
    const std::int64_t last = std::min(x.cols, first + step);
    run_down(experts, first, last);
    mix(routing, first, last, out);
  }
}

}  // namespace artery::tensor
