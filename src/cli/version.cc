#include "cli/version.h"

#include <fmt/core.h>

#include "codec/prompt/chat_template.h"
#include "tensor/backend.h"
#include "tensor/compute_pool.h"

namespace artery::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang++ {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

std::string_view version_number() { return ARTERY_VERSION; }

std::string version_line() {
  tensor::ComputePool pool(1);
  const tensor::Isa isa = tensor::best_isa();
  return fmt::format(
      "artery {} (commit {}, {}, isa {}, numerics {}, {})",
      ARTERY_VERSION,
      ARTERY_COMMIT,
      compiler(),
      tensor::name(isa),
      tensor::make_fast_backend(pool, isa)->numerics_class(),
      codec::has_jinja() ? "with Jinja templates" : "without Rust: built-in chat forms only"
  );
}

}  // namespace artery::cli
