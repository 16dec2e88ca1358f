#pragma once
// The forward pass of every family: a DecoderSpec's layers as calls of Backend verbs. Private to
// arch/. forward on the engine thread, the rest from any thread.

#include <cstdint>
#include <span>
#include <vector>

#include "model/arch/decoder_spec.h"
#include "model/arch/decoder_weights.h"
#include "model/arch/kv_groups.h"
#include "model/model.h"
#include "tensor/backend.h"

namespace artery::model {

// Cosines and sines of both kinds of layers; `window` is empty where they are the same.
struct RopeTables {
  tensor::RopeTable global;
  tensor::RopeTable window;
};

class Decoder final : public Model {
 public:
  // `backend` outlives the model.
  Decoder(
      DecoderSpec spec,
      ModelInfo info,
      DecoderWeights weights,
      RopeTables ropes,
      tensor::Backend& backend,
      tensor::KvType kv_type
  );

  const ModelInfo& info() const override { return info_; }
  KvLayout kv_layout() const override { return layout_; }
  void forward(const ForwardBatch& batch, std::span<float> logits) override;
  tensor::ComputePool* compute_pool() override { return &backend_.pool(); }

 private:
  using Rows = tensor::Rows;
  // Activations of one forward, all in the backend's scratch.
  struct Scratch {
    Rows x;        // residual stream [rows, embedding]
    Rows normed;   // [rows, embedding]
    Rows q;        // [rows, heads * head_dim]
    Rows k;        // [rows, kv_heads * head_dim]
    Rows v;        // [rows, kv_heads * head_dim]
    Rows context;  // attention's output [rows, heads * head_dim]
    Rows gate;     // [rows, feed_forward] of a dense layer or of the shared expert
    Rows up;       // the same
    Rows mixed;    // a mixture's output [rows, embedding]
    Rows router;   // [rows, experts]
    Rows shared;   // [rows, 1]
  };

  void check(const ForwardBatch& batch, std::span<float> logits) const;
  Scratch scratch(std::int64_t rows);
  void attend(const ForwardBatch& batch, int index, Scratch& s, Rows addend, bool queries);
  void project(const DecoderLayer& layer, Scratch& s);
  Rows feed_forward(const DecoderLayer& layer, Scratch& s);
  Rows mix_experts(const DecoderLayer& layer, Scratch& s);
  void keep_rows(std::span<const std::int32_t> rows, Scratch& s);
  const tensor::RopeTable& rope_of(int layer) const;

  const DecoderSpec spec_;
  ModelInfo info_;
  const DecoderWeights weights_;
  const RopeTables ropes_;
  tensor::Backend& backend_;
  const std::vector<LayerPlace> places_;
  KvLayout layout_;
};

}  // namespace artery::model
