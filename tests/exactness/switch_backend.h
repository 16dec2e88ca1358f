#pragma once
// A fast backend whose instruction set and thread count can change between engines, so that one
// loaded model serves every setting of a test: packed weights depend on neither. Owns the pools and
// backends it made. select() only while no forward runs; the rest as Backend says.

#include <map>
#include <memory>
#include <utility>

#include "tensor/backend.h"

namespace artery::exactness {

class SwitchBackend final : public tensor::Backend {
 public:
  SwitchBackend() { select(tensor::best_isa(), 1); }

  // `isa` must be supported here.
  void select(tensor::Isa isa, int threads) {
    Made& made = made_[{isa, threads}];
    if (made.backend == nullptr) {
      made.pool = std::make_unique<tensor::ComputePool>(threads);
      made.backend = tensor::make_fast_backend(*made.pool, isa);
    }
    now_ = made.backend.get();
  }

  std::string numerics_class() const override { return now_->numerics_class(); }
  tensor::Isa isa() const override { return now_->isa(); }
  tensor::ComputePool& pool() override { return now_->pool(); }
  tensor::Rows alloc(std::int64_t rows, std::int64_t cols) override {
    return now_->alloc(rows, cols);
  }
  void reset() override { now_->reset(); }
  void embed(const tensor::WeightMatrix& table, std::span<const TokenId> tokens, tensor::Rows out)
      override {
    now_->embed(table, tokens, out);
  }
  void load(std::span<const float> values, tensor::Rows out) override { now_->load(values, out); }
  void store(tensor::Rows x, std::span<float> out) override { now_->store(x, out); }
  void gather(tensor::Rows x, std::span<const std::int32_t> rows, tensor::Rows out) override {
    now_->gather(x, rows, out);
  }
  void copy(tensor::Rows x, tensor::Rows out) override { now_->copy(x, out); }
  void rms_norm(tensor::Rows x, std::span<const float> weight, float eps, tensor::Rows out)
      override {
    now_->rms_norm(x, weight, eps, out);
  }
  void rms_norm_heads(tensor::Rows x, int head_dim, std::span<const float> weight, float eps)
      override {
    now_->rms_norm_heads(x, head_dim, weight, eps);
  }
  void matmul(
      tensor::Rows x, const tensor::WeightMatrix& w, std::span<const float> bias, tensor::Rows out
  ) override {
    now_->matmul(x, w, bias, out);
  }
  void rope(
      tensor::Rows x,
      int head_dim,
      std::span<const Position> positions,
      const tensor::RopeTable& table
  ) override {
    now_->rope(x, head_dim, positions, table);
  }
  void kv_write(
      tensor::Rows k,
      tensor::Rows v,
      const tensor::KvPages& kv,
      int layer,
      const tensor::AttentionBatch& batch
  ) override {
    now_->kv_write(k, v, kv, layer, batch);
  }
  void attention(
      tensor::Rows q,
      const tensor::KvPages& kv,
      int layer,
      const tensor::AttentionBatch& batch,
      const tensor::AttentionShape& shape,
      tensor::Rows out
  ) override {
    now_->attention(q, kv, layer, batch, shape, out);
  }
  void gated(tensor::Gating gating, tensor::Rows gate, tensor::Rows up, tensor::Rows out) override {
    now_->gated(gating, gate, up, out);
  }
  void add(tensor::Rows x, tensor::Rows y) override { now_->add(x, y); }
  void scale(tensor::Rows x, float factor) override { now_->scale(x, factor); }
  void gate_rows(tensor::Rows gate, tensor::Rows x) override { now_->gate_rows(gate, x); }
  tensor::Routing route(tensor::Rows logits, const tensor::RouterShape& shape) override {
    return now_->route(logits, shape);
  }
  void experts(
      tensor::Rows x,
      const tensor::Routing& routing,
      const tensor::Experts& experts,
      tensor::Rows out
  ) override {
    now_->experts(x, routing, experts, out);
  }

 private:
  struct Made {
    std::unique_ptr<tensor::ComputePool> pool;
    std::unique_ptr<tensor::Backend> backend;
  };
  std::map<std::pair<tensor::Isa, int>, Made> made_;
  tensor::Backend* now_ = nullptr;
};

}  // namespace artery::exactness
