#pragma once
// One function a verb, each in its own verb_<name>.cc: its flags, help and what it does. Main
// thread.

#include "cli/flags.h"

namespace artery::cli {

Verb serve_verb();
Verb run_verb();
Verb run_batch_verb();
Verb bench_kv_verb();
Verb bench_model_verb();
Verb bench_serve_verb();
Verb bench_tokenizer_verb();
Verb codec_image_verb();
Verb codec_parse_verb();
Verb codec_render_verb();
Verb doctor_verb();
Verb inspect_verb();
Verb tokenize_verb();
Verb detokenize_verb();
Verb template_verb();
Verb eval_verb();
Verb kv_verify_verb();
Verb kv_gc_verb();
Verb kv_drop_tenant_verb();
Verb simulate_cache_verb();

}  // namespace artery::cli
