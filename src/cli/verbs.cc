#include "cli/verbs.h"

namespace artery::cli {

std::vector<Verb> all_verbs() {
  return {
      serve_verb(),       run_verb(),          run_batch_verb(),       bench_kv_verb(),
      bench_model_verb(), bench_serve_verb(),  bench_tokenizer_verb(), codec_image_verb(),
      codec_parse_verb(), codec_render_verb(), doctor_verb(),          inspect_verb(),
      tokenize_verb(),    detokenize_verb(),   template_verb(),        eval_verb(),
      kv_verify_verb(),   kv_gc_verb(),        kv_drop_tenant_verb(),  simulate_cache_verb(),
  };
}

}  // namespace artery::cli
