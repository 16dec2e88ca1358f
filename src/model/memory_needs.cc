#include "model/memory_needs.h"

#include <algorithm>
#include <functional>

#include "model/registry.h"
#include "tensor/weights.h"

namespace artery::model {
namespace {

WeightsOfType& of_type(std::vector<WeightsOfType>& weights, tensor::DType type) {
  const auto known = std::ranges::find(weights, type, &WeightsOfType::type);
  if (known != weights.end()) return *known;
  weights.push_back({.type = type});
  return weights.back();
}

}  // namespace

std::int64_t MemoryNeeds::weight_bytes() const {
  std::int64_t sum = 0;
  for (const WeightsOfType& each : weights) sum += each.bytes;
  return sum;
}

void add_weights(std::span<const TensorInfo* const> tensors, MemoryNeeds& needs) {
  tensor::ResidentBytes resident;
  for (const TensorInfo* tensor : tensors) {
    const bool vector = tensor->shape.size() < 2;
    WeightsOfType& same = of_type(needs.weights, vector ? tensor::DType::kF32 : tensor->type);
    const std::int64_t values = tensor->cols() * tensor->rows();
    same.values += values;
    if (vector) {
      same.bytes += values * std::int64_t{sizeof(float)};
      needs.resident_weight_bytes += values * std::int64_t{sizeof(float)};
      continue;
    }
    const std::int64_t count = tensor->shape.size() > 2 ? tensor->shape[2] : 1;
    const std::int64_t each =
        tensor::WeightMatrix::packed_bytes(tensor->type, tensor->shape[1], tensor->cols());
    for (std::int64_t i = 0; i < count; ++i) resident.add(each);
    same.bytes += count * each;
  }
  needs.resident_weight_bytes += resident.total();
  std::ranges::sort(needs.weights, std::greater<>(), &WeightsOfType::bytes);
}

Result<MemoryNeeds> memory_needs(const ModelFile& file, const NeedsWish& wish) {
  return TRY(find_architecture(file))->needs(file, wish);
}

}  // namespace artery::model
