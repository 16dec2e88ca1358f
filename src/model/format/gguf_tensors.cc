// The second half of GgufParser: the tensor list and where the tensors lie.

#include <fmt/format.h>

#include <algorithm>

#include "model/format/gguf_parser.h"
#include "model/format/text.h"

namespace artery::model {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

}  // namespace

std::string_view GgufParser::count_hint(std::uint64_t index) const {
  if (index == 1 && tensor_count_ > 1)
    return " (the metadata count is too small, or the file damaged)";
  if (index == tensor_count_) return " (the tensor count is too large, or the file damaged)";
  return "";
}

Result<> GgufParser::tensor_list() {
  for (std::uint64_t i = 1; i <= tensor_count_; ++i) {
    TensorInfo info = TRY(tensor(i));
    out_->tensors_.push_back(std::move(info));
  }
  return {};
}

Result<TensorInfo> GgufParser::tensor(std::uint64_t index) {
  TensorInfo info;
  info.name = TRY(tensor_name(index));
  TRY(tensor_shape(info, index));
  TRY(tensor_type(info, index));
  TRY(tensor_size(info));
  return info;
}

Result<std::string> GgufParser::tensor_name(std::uint64_t index) {
  const std::uint64_t start = at_;
  std::uint64_t length = 0;
  if (!read(length) || length > left()) {
    return fail(
        Code::kBadFile,
        "{}: truncated in tensor information {} of {} at byte {}: name length {} exceeds the "
        "file{}",
        path_,
        index,
        tensor_count_,
        start,
        length,
        count_hint(index)
    );
  }
  if (length == 0) {
    return fail(
        Code::kBadFile,
        "{}: tensor information {} of {} at byte {} is malformed: the name is empty{}",
        path_,
        index,
        tensor_count_,
        start,
        count_hint(index)
    );
  }
  if (length > kNameBytesMax) {
    return fail(
        Code::kBadFile,
        "{}: tensor information {} of {} at byte {} is malformed: tensor name of {} bytes is "
        "longer than {}{}",
        path_,
        index,
        tensor_count_,
        start,
        length,
        kNameBytesMax,
        count_hint(index)
    );
  }
  const std::string_view text = take(length);
  if (!is_utf8(text) || text.find('\0') != std::string_view::npos) {
    return fail(
        Code::kBadFile,
        "{}: tensor name {} ('{}', byte {}) is not valid UTF-8 text",
        path_,
        index,
        printable(text),
        start
    );
  }
  return std::string(text);
}

tl::unexpected<Error> GgufParser::truncated(const TensorInfo& info, std::uint64_t index) const {
  return fail(
      Code::kBadFile,
      "{}: truncated in tensor information {} of {} ({}) at byte {}",
      path_,
      index,
      tensor_count_,
      printable(info.name),
      at_
  );
}

Result<> GgufParser::tensor_shape(TensorInfo& info, std::uint64_t index) {
  const std::string shown = printable(info.name);
  std::uint32_t dims = 0;
  if (!read(dims)) return truncated(info, index);
  if (dims == 0 || dims > kDimsMax) {
    return fail(
        Code::kBadFile,
        "{}: malformed tensor information {} of {}: tensor {} has {} dimensions, the limit is 1 "
        "to {}{}",
        path_,
        index,
        tensor_count_,
        shown,
        dims,
        kDimsMax,
        count_hint(index)
    );
  }
  for (std::uint32_t d = 0; d < dims; ++d) {
    std::uint64_t size = 0;
    if (!read(size)) return truncated(info, index);
    if (size == 0) {
      return fail(
          Code::kBadFile, "{}: tensor {} has a zero dimension (dimension {} is 0)", path_, shown, d
      );
    }
    if (size > INT64_MAX) {
      return fail(
          Code::kBadFile,
          "{}: malformed tensor information {} of {}: tensor {}: dimension {} is {}, too large{}",
          path_,
          index,
          tensor_count_,
          shown,
          d,
          size,
          count_hint(index)
      );
    }
    info.shape.push_back(static_cast<std::int64_t>(size));
  }
  return {};
}

Result<> GgufParser::tensor_type(TensorInfo& info, std::uint64_t index) {
  const std::string shown = printable(info.name);
  std::uint32_t id = 0;
  if (!read(id) || !read(info.offset)) return truncated(info, index);
  if (const auto removed = tensor::removed_type(id)) {
    return fail(
        Code::kUnsupported,
        "{}: tensor {} has type {}, removed from the format: {}",
        path_,
        shown,
        id,
        *removed
    );
  }
  const tensor::TypeTraits* found = tensor::find_type(id);
  if (found == nullptr) {
    return fail(
        Code::kUnsupported,
        "{}: malformed tensor information {} of {}: tensor {} has unknown type {}{}",
        path_,
        index,
        tensor_count_,
        shown,
        id,
        count_hint(index)
    );
  }
  info.type = found->type;
  return {};
}

Result<> GgufParser::tensor_size(TensorInfo& info) {
  const tensor::TypeTraits& type = tensor::traits(info.type);
  const std::string shown = printable(info.name);
  const std::int64_t cols = info.shape[0];
  std::int64_t elements = 1;
  bool overflows = false;
  for (const std::int64_t size : info.shape)
    overflows |= __builtin_mul_overflow(elements, size, &elements);
  if (overflows) {
    return fail(
        Code::kBadFile,
        "{}: tensor {}: element count overflows 64 bits ({})",
        path_,
        shown,
        shape_text(info.shape)
    );
  }
  if (cols % type.block_values != 0) {
    return fail(
        Code::kBadFile,
        "{}: tensor {}: rows of {} values are not a multiple of {}'s block of {}",
        path_,
        shown,
        cols,
        type.name,
        type.block_values
    );
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / type.block_values, type.block_bytes, &bytes)) {
    return fail(
        Code::kBadFile,
        "{}: tensor {}: byte count overflows 64 bits ({} of {})",
        path_,
        shown,
        shape_text(info.shape),
        type.name
    );
  }
  info.bytes = static_cast<std::uint64_t>(bytes);
  return {};
}

Result<> GgufParser::place_tensors() {
  const std::uint64_t alignment = out_->alignment_;
  std::uint64_t start = 0;
  const bool overflows = __builtin_add_overflow(at_, alignment - 1, &start);
  start &= ~(alignment - 1);
  const bool empty = out_->tensors_.empty();
  out_->data_start_ = empty ? bytes_.size() : start;
  if (empty) return {};
  if (overflows || start >= bytes_.size()) {
    return fail(
        Code::kBadFile,
        "{}: tensor data missing: the data section starts at byte {} (general.alignment is {}), "
        "the file ends at byte {}",
        path_,
        start,
        alignment,
        bytes_.size()
    );
  }
  // In data order, so that a cut file is told by the first tensor that is not whole.
  std::vector<TensorInfo*> by_offset;
  by_offset.reserve(out_->tensors_.size());
  for (TensorInfo& info : out_->tensors_) by_offset.push_back(&info);
  // Ties in list order; std::stable_sort is deprecated in what clang sees of libstdc++ 12.
  std::ranges::sort(by_offset, {}, [](const TensorInfo* t) { return std::pair(t->offset, t); });
  for (TensorInfo* info : by_offset) TRY(place_tensor(*info));
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& before = *by_offset[i - 1];
    if (before.offset + before.bytes > by_offset[i]->offset) {
      return fail(
          Code::kBadFile,
          "{}: tensors {} and {} overlap at byte {}",
          path_,
          printable(by_offset[i]->name),
          printable(before.name),
          by_offset[i]->offset
      );
    }
  }
  const std::uint64_t end = by_offset.back()->offset + by_offset.back()->bytes;
  if (bytes_.size() - end >= alignment) {
    out_->warnings_.push_back(
        fmt::format("{}: {} bytes after the last tensor are ignored", path_, bytes_.size() - end)
    );
  }
  return {};
}

// Turns info.offset from "within the data section" to "within the file", after every check.
Result<> GgufParser::place_tensor(TensorInfo& info) const {
  const std::string shown = printable(info.name);
  const std::uint64_t start = out_->data_start_;
  if (info.offset % out_->alignment_ != 0) {
    return fail(
        Code::kBadFile,
        "{}: tensor {}: offset {} is not a multiple of the alignment {}",
        path_,
        shown,
        info.offset,
        out_->alignment_
    );
  }
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  if (__builtin_add_overflow(info.offset, start, &first) ||
      __builtin_add_overflow(first, info.bytes, &end)) {
    return fail(
        Code::kBadFile,
        "{}: tensor {}: offset {} + size {} overflows 64 bits",
        path_,
        shown,
        info.offset,
        info.bytes
    );
  }
  if (first >= bytes_.size()) {
    return fail(
        Code::kBadFile,
        "{}: tensor {}: offset {} is past the end of the file (it needs bytes {} to {}, the file "
        "has {})",
        path_,
        shown,
        info.offset,
        first,
        end,
        bytes_.size()
    );
  }
  if (end > bytes_.size()) {
    const std::uint64_t excess = end - bytes_.size();
    return fail(
        Code::kBadFile,
        "{}: tensor data truncated: tensor {} lies {} byte{} past the end of the file (it needs "
        "bytes {} to {}, the file has {}); fetch the file again",
        path_,
        shown,
        excess,
        excess == 1 ? "" : "s",
        first,
        end,
        bytes_.size()
    );
  }
  info.offset = first;
  return {};
}

}  // namespace artery::model
