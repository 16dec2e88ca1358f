#include "cli/model_facts.h"

namespace artery::cli {
namespace {

Result<std::uint64_t> unsigned_or(
    const model::ModelFile& file, const std::string& key, std::uint64_t fallback
) {
  if (file.find_key(key) == nullptr) return fallback;
  return file.get_unsigned(key);
}

}  // namespace

Result<std::int64_t> kv_bytes_per_token(const model::ModelFile& file, tensor::KvType type) {
  const std::string arch(TRY(file.get_string("general.architecture")));
  const std::uint64_t layers = TRY(file.get_unsigned(arch + ".block_count"));
  const std::uint64_t embedding = TRY(file.get_unsigned(arch + ".embedding_length"));
  const std::uint64_t heads = TRY(file.get_unsigned(arch + ".attention.head_count"));
  if (heads == 0) return fail(Code::kBadFile, "{}: head_count is 0", file.path());
  const std::uint64_t kv_heads = TRY(unsigned_or(file, arch + ".attention.head_count_kv", heads));
  const std::uint64_t key_length =
      TRY(unsigned_or(file, arch + ".attention.key_length", embedding / heads));
  const std::uint64_t value_length =
      TRY(unsigned_or(file, arch + ".attention.value_length", key_length));
  const auto head = [&](std::uint64_t length) {
    return tensor::KvGeometry{.head_dim = static_cast<int>(length), .type = type};
  };
  const std::int64_t page = head(key_length).k_bytes() + head(value_length).v_bytes();
  return static_cast<std::int64_t>(layers * kv_heads) * page / kPageTokens;
}

std::string slow_types_advice(const model::ModelInfo& info) {
  return fmt::format(
      "{}: {} have no fast kernel yet and are unpacked in every step, so decoding is slow; F32, "
      "F16, "
      "BF16, Q4_0, Q4_1 and Q8_0 have one",
      info.name,
      info.slow_types
  );
}

}  // namespace artery::cli
