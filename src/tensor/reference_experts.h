#pragma once
// Mixtures of experts in double by plain loops, over the reference backend's other verbs. Called by
// that backend only, on its thread; see Backend::route and Backend::experts.

#include "tensor/backend.h"

namespace artery::tensor {

Routing reference_route(Backend& backend, Rows logits, const RouterShape& shape);
void reference_experts(
    Backend& backend, Rows x, const Routing& routing, const Experts& experts, Rows out
);

}  // namespace artery::tensor
