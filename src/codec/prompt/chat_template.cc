#include "codec/prompt/chat_template.h"

#include <utility>

#include "codec/prompt/builtin_forms.h"
#include "codec/prompt/form_shape.h"
#ifdef ARTERY_HAS_RUST
#include "codec/prompt/jinja_template.h"
#endif

namespace artery::codec {

bool has_jinja() {
#ifdef ARTERY_HAS_RUST
  return true;
#else
  return false;
#endif
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::make(
    std::string_view source, TemplateTokens tokens
) {
  if (auto shape = shape_by_name(source)) {
    return make_builtin(std::string(source), *std::move(shape), std::move(tokens));
  }
#ifdef ARTERY_HAS_RUST
  return make_jinja(source, std::move(tokens));
#else
  if (auto shape = shape_of_source(source)) {
    return make_builtin(std::string(source), *std::move(shape), std::move(tokens));
  }
  return fail(
      Code::kUnsupported,
      "this model's chat template needs the Jinja engine, which is not in this build: install "
      "cargo "
      ">= 1.87 and rebuild, or name a built-in form (chatml, llama2, llama3, mistral)"
  );
#endif
}

}  // namespace artery::codec
