#pragma once
// One KV element at a time, of every KvType and in KvGeometry's layout, for the reference backend.
// Functions of memory they are given; any thread over disjoint positions. Nothing here is fast.

#include <cstddef>
#include <span>

#include "tensor/backend.h"

namespace artery::tensor {

// K (or V) of one page, layer and head: where k_offset (v_offset) points.
double kv_key(const std::byte* keys, const KvGeometry& g, int lane, int d);
double kv_value(const std::byte* values, const KvGeometry& g, int lane, int d);

// Writes one position's k or v [head_dim]. kI16 rounds as ops/attention_int16_kv.inc documents,
// with the scale found in float64.
void put_key(std::byte* keys, const KvGeometry& g, int lane, std::span<const double> k);
void put_value(std::byte* values, const KvGeometry& g, int lane, std::span<const double> v);

}  // namespace artery::tensor
