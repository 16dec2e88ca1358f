#include "cli/verbs.h"

namespace artery::cli {

std::vector<Verb> all_verbs() {
  return {
      serve_verb(),
      run_verb(),
      bench_model_verb(),
      bench_serve_verb(),
      bench_tokenizer_verb(),
      doctor_verb(),
      inspect_verb(),
      tokenize_verb(),
      detokenize_verb(),
      template_verb(),
      eval_verb(),
  };
}

}  // namespace artery::cli
