#pragma once
// Reads a model's hyper-parameters, "<architecture>.<key>", with the limits that keep later
// arithmetic safe. A view of a ModelFile that outlives it; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/format/model_file.h"

namespace artery::model {

class HyperParameters {
 public:
  HyperParameters(const ModelFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}

  const ModelFile& file() const { return file_; }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  bool has(std::string_view key) const { return file_.find_key(full(key)) != nullptr; }

  // A value in [1, max]. kBadFile: missing, another type, zero; kUnsupported: above `max`.
  Result<std::int64_t> count(std::string_view key, std::int64_t max) const;
  Result<std::int64_t> count_or(std::string_view key, std::int64_t max, std::int64_t absent) const;
  // A finite number. kBadFile otherwise.
  Result<double> number(std::string_view key) const;
  Result<double> number_or(std::string_view key, double absent) const;
  Result<bool> flag_or(std::string_view key, bool absent) const;
  // An array of booleans, or of integers that are 0 or not. kBadFile otherwise.
  Result<std::vector<bool>> flags(std::string_view key) const;
  // 0 where absent; any other value in [0, 2^63).
  Result<std::uint64_t> unsigned_or_0(std::string_view key) const;
  Result<std::string_view> text_or(std::string_view key, std::string_view absent) const;

  // fail() with the file's path in front.
  template <typename... Args>
  tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> text, Args&&... args) const {
    return artery::fail(
        code, "{}: {}", file_.path(), fmt::format(text, std::forward<Args>(args)...)
    );
  }

 private:
  const ModelFile& file_;
  std::string architecture_;
};

}  // namespace artery::model
