#pragma once
// What a model file says about speed, before any weight is read. Any thread.

#include <string>

#include "model/model.h"

namespace artery::cli {

// What to say of ModelInfo::slow_types, which is not empty.
std::string slow_types_advice(const model::ModelInfo& info);

}  // namespace artery::cli
