#pragma once
// How the layers of a decoder are divided into the groups of its KV layout. Pure, any thread.

#include <cstdint>
#include <vector>

#include "model/arch/decoder_spec.h"
#include "model/kv_layout.h"
#include "tensor/backend.h"

namespace artery::model {

// Where a layer's entries are: layer `layer` of group `group`.
struct LayerPlace {
  int group = 0;
  int layer = 0;
};

// Whether any layer reads less than all of `context` positions.
bool has_window_group(const DecoderSpec& spec, std::int64_t context);

// One of each layer, for `context` positions served.
std::vector<LayerPlace> layer_places(const DecoderSpec& spec, std::int64_t context);

// A global group, perhaps without layers, and a window group where there are windows shorter than
// the context. numerics_id is left empty.
KvLayout kv_layout_of(const DecoderSpec& spec, tensor::KvType type, std::int64_t context);

}  // namespace artery::model
