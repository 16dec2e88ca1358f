#include "testing/mem_file_system.h"

namespace artery::testing {

Result<std::unique_ptr<MappedFile>> MemFileSystem::map(const std::string& path) const {
  const auto fault = faults_.find(path);
  if (fault != faults_.end()) return tl::unexpected<Error>(fault->second);
  return FaultFileSystem::map(path);
}

Result<std::string> MemFileSystem::read(const std::string& path, std::size_t bytes_max) const {
  const auto fault = faults_.find(path);
  if (fault != faults_.end()) return tl::unexpected<Error>(fault->second);
  return FaultFileSystem::read(path, bytes_max);
}

}  // namespace artery::testing
