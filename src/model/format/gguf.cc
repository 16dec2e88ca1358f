#include "model/format/gguf.h"

#include "model/format/gguf_parser.h"

namespace artery::model {

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path, const FileSystem& fs) {
  auto file = TRY(fs.map(path));
  return GgufParser(path, std::move(file)).parse();
}

Result<std::span<const std::byte>> GgufFile::
    rows(const TensorInfo& tensor, std::int64_t first, std::int64_t count, std::vector<std::byte>&)
        const {
  const std::uint64_t row = tensor.row_bytes();
  return file_->bytes().subspan(
      tensor.offset + static_cast<std::uint64_t>(first) * row,
      static_cast<std::uint64_t>(count) * row
  );
}

}  // namespace artery::model
