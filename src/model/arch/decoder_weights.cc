#include "model/arch/decoder_weights.h"

#include <cstring>
#include <span>
#include <string>

#include "model/arch/decoder_tensors.h"
#include "tensor/quant/decode.h"

namespace artery::model {
namespace {

using tensor::DType;
using tensor::WeightMatrix;
using tensor::WeightVector;

class Loader {
 public:
  Loader(
      const ModelFile& file,
      tensor::ComputePool& pool,
      const std::function<void(std::uint64_t)>& packed
  )
      : file_(file), pool_(pool), packed_(packed) {}

  // Empty when the file has no such tensor.
  Result<WeightMatrix> matrix(const std::string& name) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return WeightMatrix();
    auto packed = part(*info, 0, info->rows());
    if (packed) done(*info);
    return packed;
  }

  Result<WeightVector> vector(const std::string& name) {
    const TensorInfo* info = file_.find(name);
    WeightVector out;
    if (info == nullptr) return out;
    out = TRY(values(*info));
    packed_(info->bytes);
    return out;
  }

  Result<> linear(const LinearSlot& slot, std::int64_t index, DecoderLayer& layer) {
    const TensorInfo& info = *file_.find(layer_tensor(index, slot.name, "weight"));
    const WeightVector bias = TRY(vector(layer_tensor(index, slot.name, "bias")));
    std::int64_t first = 0;
    for (const LinearPart& where : slot.parts) {
      Linear& target = layer.*where.target;
      target.weight =
          slot.as_float ? TRY(as_float(info, slot)) : TRY(part(info, first, where.rows));
      if (!bias.empty()) target.bias.assign(bias.data() + first, bias.data() + first + where.rows);
      first += where.rows;
    }
    done(info);
    return {};
  }

  Result<> experts(const ExpertSlot& slot, std::int64_t index, DecoderLayer& layer) {
    const TensorInfo& info = *file_.find(layer_tensor(index, slot.name, "weight"));
    for (std::int64_t first = 0; first < info.rows(); first += slot.rows)
      (layer.*slot.target).push_back(TRY(part(info, first, slot.rows)));
    layer.*slot.bias = TRY(vector(layer_tensor(index, slot.name, "bias")));
    done(info);
    return {};
  }

 private:
  Result<WeightMatrix> part(const TensorInfo& info, std::int64_t first, std::int64_t count) {
    const auto raw = TRY(file_.rows(info, first, count, scratch_));
    return WeightMatrix::pack(info.type, count, info.cols(), raw, pool_);
  }

  Result<WeightVector> values(const TensorInfo& info) {
    WeightVector out(static_cast<std::size_t>(info.cols() * info.rows()));
    tensor::quant::decode_row(info.type, TRY(file_.rows(info, 0, info.rows(), scratch_)), out);
    return out;
  }

  Result<WeightMatrix> as_float(const TensorInfo& info, const LinearSlot& slot) {
    const WeightVector all = TRY(values(info));
    return WeightMatrix::pack(
        DType::kF32, slot.rows(), slot.cols, std::as_bytes(std::span(all)), pool_
    );
  }

  // Else the file's pages and the packed weights are in memory together until the load ends.
  void done(const TensorInfo& info) {
    file_.release(info);
    packed_(info.bytes);
  }

  const ModelFile& file_;
  tensor::ComputePool& pool_;
  const std::function<void(std::uint64_t)>& packed_;
  std::vector<std::byte> scratch_;
};

std::int64_t bytes_of(const WeightVector& v) {
  return static_cast<std::int64_t>(v.size() * sizeof(float));
}
std::int64_t bytes_of(const Linear& l) {
  return static_cast<std::int64_t>(l.weight.bytes()) + bytes_of(l.bias);
}
std::int64_t bytes_of(const std::vector<WeightMatrix>& all) {
  std::int64_t sum = 0;
  for (const WeightMatrix& w : all) sum += static_cast<std::int64_t>(w.bytes());
  return sum;
}

std::int64_t bytes_of(const LayerSlots& slots, const DecoderLayer& layer) {
  std::int64_t sum = 0;
  for (const VectorSlot& slot : slots.vectors) sum += bytes_of(layer.*slot.target);
  for (const LinearSlot& slot : slots.linears)
    for (const LinearPart& part : slot.parts) sum += bytes_of(layer.*part.target);
  for (const ExpertSlot& slot : slots.experts)
    sum += bytes_of(layer.*slot.target) + bytes_of(layer.*slot.bias);
  return sum;
}

}  // namespace

Result<DecoderWeights> load_decoder_weights(
    const ModelFile& file,
    const DecoderSpec& spec,
    std::int64_t context,
    tensor::ComputePool& pool,
    const std::function<void(std::uint64_t bytes)>& packed
) {
  Loader loader(file, pool, packed);
  const LayerSlots slots = layer_slots(spec);
  DecoderWeights out;
  out.token_embedding = TRY(loader.matrix("token_embd.weight"));
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    DecoderLayer layer;
    for (const VectorSlot& slot : slots.vectors)
      layer.*slot.target = TRY(loader.vector(layer_tensor(i, slot.name)));
    for (const LinearSlot& slot : slots.linears) TRY(loader.linear(slot, i, layer));
    for (const ExpertSlot& slot : slots.experts) TRY(loader.experts(slot, i, layer));
    out.bytes += bytes_of(slots, layer);
    out.layers.push_back(std::move(layer));
  }
  out.output_norm = TRY(loader.vector("output_norm.weight"));
  out.output.weight = TRY(loader.matrix("output.weight"));
  out.output.bias = TRY(loader.vector("output.bias"));
  out.rope_divisors = TRY(loader.vector(divisors_tensor(spec.rope, context)));
  out.bytes += static_cast<std::int64_t>(out.token_embedding.bytes()) + bytes_of(out.output) +
               bytes_of(out.output_norm);
  return out;
}

}  // namespace artery::model
