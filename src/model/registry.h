#pragma once
// Which architectures there are. A new family is one file in arch/ and one line in registry.cc.
// Constant after start, any thread.

#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "model/load.h"
#include "model/memory_needs.h"

namespace artery::model {

struct Architecture {
  std::string_view name;  // general.architecture
  Result<ModelInfo> (*check)(const ModelFile& file);
  Result<std::unique_ptr<Model>> (*load)(
      const ModelFile& file, ModelInfo info, tensor::Backend& backend, const LoadOptions& options
  );
  Result<MemoryNeeds> (*needs)(const ModelFile& file, const NeedsWish& wish);
};

std::span<const Architecture> architectures();

// By general.architecture. kBadFile: missing, no string; kUnsupported: unknown, with the list of
// those we know.
Result<const Architecture*> find_architecture(const ModelFile& file);

}  // namespace artery::model
