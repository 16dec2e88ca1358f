// Products of the fast backend: a batch's rows are made (sum, norm, activation), rounded for the
// kernels and multiplied with every matrix that reads them, in two loops over the threads.

#include "tensor/fast_backend.h"

namespace artery::tensor {

MatmulArgs FastBackend::matmul_args(const Rows& x, const Product& product) const {
  MatmulArgs args = {};
  args.tile_bytes = product.weight->tile_bytes();
  args.n_end = product.weight->rows();
  args.cols = product.weight->cols();
  args.x = floats(x);
  args.x_rows = x.rows;
  args.bias = product.bias.empty() ? nullptr : product.bias.data();
  args.out = floats(product.out);
  args.out_stride = product.out.cols;
  return args;
}

// jobs_ for `products`, and where their prepared activations will lie.
void FastBackend::plan_jobs(const Rows& x, std::span<const Product> products) {
  jobs_.clear();
  offsets_.clear();
  bool groups = false;
  for (const Product& product : products) {
    ops::check_matmul(x, *product.weight, product.bias, product.out);
    if (product.weight->rows() == 0) continue;
    const MatmulPlan plan = plan_of(product.weight->type());
    jobs_.push_back({plan, product.weight, matmul_args(x, product)});
    groups = groups || product.weight->type() == DType::kBF16;
    if (plan.int8 && std::ranges::find(offsets_, plan.offset) == offsets_.end()) {
      offsets_.push_back(plan.offset);
    }
  }
  const std::int64_t blocks = x.rows * (x.cols / ops::kQuantBlock);
  ops::ActBlock* act = act_.get(offsets_.size() * static_cast<std::size_t>(blocks));
  group_x_ = groups ? groups_x_.get(static_cast<std::size_t>(k_.bf16.group_floats(x.cols, x.rows)))
                    : nullptr;
  for (Job& job : jobs_) {
    const auto at = std::ranges::find(offsets_, job.plan.offset) - offsets_.begin();
    if (job.plan.int8) job.args.act = act + at * blocks;
    if (job.weight->type() == DType::kBF16) job.args.group_x = group_x_;
  }
}

// Rows [begin, end) of x as jobs_ read them; `begin` starts a group.
void FastBackend::round_rows(const Rows& x, std::int64_t begin, std::int64_t end) {
  const std::int64_t blocks = x.cols / ops::kQuantBlock;
  ops::ActBlock* act = act_.get(0);
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    ops::ActBlock* to = act + static_cast<std::int64_t>(i) * x.rows * blocks;
    for (std::int64_t r = begin; r < end; ++r) {
      k_.quantize(row_of(x, r), blocks, offsets_[i], to + r * blocks);
    }
  }
  if (group_x_ == nullptr) return;
  const std::int64_t most = k_.bf16.group_rows;
  for (std::int64_t r = begin; r < end; r += most) {
    const auto count = static_cast<int>(std::min(most, x.rows - r));
    float* to = group_x_ + k_.bf16.group_floats(x.cols, r);
    k_.bf16.pack(row_of(x, r), x.cols, x.cols, count, to);
  }
}

// make(row) writes a row of x; a few rows at a time, so that they are still in the cache when they
// are rounded.
template <typename Make>
void FastBackend::multiply(const Rows& x, std::span<const Product> products, const Make& make) {
  plan_jobs(x, products);
  const std::int64_t group = k_.bf16.group_rows;
  const auto chunk = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; r += group) {
      const std::int64_t stop = std::min(end, r + group);
      for (std::int64_t i = r; i < stop; ++i) make(i);
      round_rows(x, r, stop);
    }
  };
  const std::int64_t rows = kSerialValues / std::max<std::int64_t>(1, x.cols);
  pool_.parallel_for(x.rows, group * std::max<std::int64_t>(1, rows / group), std::ref(chunk));
  run_jobs(x.rows);
}

// The tiles of all jobs as one loop.
void FastBackend::run_jobs(std::int64_t x_rows) {
  std::int64_t tiles = 0;
  std::int64_t bytes = 0;
  for (Job& job : jobs_) {
    if (job.plan.kernel == nullptr) continue;
    job.first_tile = tiles;
    tiles += job.weight->tiles();
    bytes += job.weight->tiles() * static_cast<std::int64_t>(job.weight->tile_bytes());
  }
  const auto body = [&](std::int64_t begin, std::int64_t end, int) {
    for (const Job& job : jobs_) {
      if (job.plan.kernel == nullptr) continue;
      const std::int64_t first = std::max<std::int64_t>(0, begin - job.first_tile);
      const std::int64_t last = std::min(job.weight->tiles(), end - job.first_tile);
      if (first >= last) continue;
      MatmulArgs part = job.args;
      part.tiles = job.weight->tile(first);
      part.tile_count = last - first;
      part.n_begin = first * kLanes;
      job.plan.kernel(part);
    }
  };
  if (tiles > 0) run_units(tiles, bytes, x_rows, std::ref(body));
  for (const Job& job : jobs_) {
    if (job.plan.kernel == nullptr) matmul_by_rows(*job.weight, job.args);
  }
}

void FastBackend::matmul(Rows x, const WeightMatrix& w, std::span<const float> bias, Rows out) {
  const Product product = {&w, bias, out};
  matmuls(x, {&product, 1});
}

void FastBackend::matmuls(Rows x, std::span<const Product> products) {
  multiply(x, products, [](std::int64_t) {});
}

void FastBackend::norm_matmuls(
    Rows x,
    Rows addend,
    std::span<const float> weight,
    float eps,
    Rows normed,
    std::span<const Product> products
) {
  ops::check_same_shape(x, normed);
  CHECK(weight.size() == static_cast<std::size_t>(x.cols), "{} of {}", weight.size(), x.cols);
  const bool adds = addend.data != nullptr;
  if (adds) ops::check_same_shape(x, addend);
  multiply(normed, products, [&](std::int64_t r) {
    if (adds) k_.add(row_of(x, r), row_of(addend, r), x.cols);
    k_.rms_norm(row_of(x, r), weight.data(), eps, x.cols, row_of(normed, r));
  });
}

void FastBackend::gated_matmuls(
    Gating gating, Rows gate, Rows up, std::span<const Product> products
) {
  ops::check_same_shape(gate, up);
  const GatedKernel kernel = gated_kernel(gating);
  multiply(gate, products, [&](std::int64_t r) {
    kernel(row_of(gate, r), row_of(up, r), gate.cols, row_of(gate, r));
  });
}

}  // namespace artery::tensor
