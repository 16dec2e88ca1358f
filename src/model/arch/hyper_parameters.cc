#include "model/arch/hyper_parameters.h"

#include <cmath>

namespace artery::model {

Result<std::int64_t> HyperParameters::count(std::string_view key, std::int64_t max) const {
  const std::string name = full(key);
  const auto value = static_cast<std::int64_t>(TRY(file_.get_unsigned(name)));
  if (value == 0) return fail(Code::kBadFile, "{} is 0", name);
  if (value > max) return fail(Code::kUnsupported, "{} is {}, the limit is {}", name, value, max);
  return value;
}

Result<std::int64_t> HyperParameters::count_or(
    std::string_view key, std::int64_t max, std::int64_t absent
) const {
  if (!has(key)) return absent;
  return count(key, max);
}

Result<double> HyperParameters::number(std::string_view key) const {
  const std::string name = full(key);
  const double value = TRY(file_.get_float(name));
  if (!std::isfinite(value)) return fail(Code::kBadFile, "{} is not a finite number", name);
  return value;
}

Result<double> HyperParameters::number_or(std::string_view key, double absent) const {
  if (!has(key)) return absent;
  return number(key);
}

Result<bool> HyperParameters::flag_or(std::string_view key, bool absent) const {
  if (!has(key)) return absent;
  return file_.get_bool(full(key));
}

Result<std::vector<bool>> HyperParameters::flags(std::string_view key) const {
  std::vector<bool> out;
  const GgufValue* found = file_.find_key(full(key));
  const auto* array = found == nullptr ? nullptr : std::get_if<GgufArray>(&found->value);
  if (array != nullptr && array->item_type == GgufType::kBool) {
    for (const std::byte flag : array->raw) out.push_back(flag != std::byte{0});
    return out;
  }
  for (const std::int64_t value : TRY(file_.get_integers(full(key)))) out.push_back(value != 0);
  return out;
}

Result<std::uint64_t> HyperParameters::unsigned_or_0(std::string_view key) const {
  if (!has(key)) return std::uint64_t{0};
  return file_.get_unsigned(full(key));
}

Result<std::string_view> HyperParameters::text_or(std::string_view key, std::string_view absent)
    const {
  if (!has(key)) return absent;
  return file_.get_string(full(key));
}

}  // namespace artery::model
