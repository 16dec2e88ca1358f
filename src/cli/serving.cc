#include "cli/serving.h"

#include <filesystem>
#include <new>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "cli/deepseek_format.h"
#include "cli/hf_tokenizer_loader.h"
#include "cli/model_facts.h"
#include "cli/model_file.h"
#include "cli/plan_text.h"
#include "cli/start_phases.h"
#include "cli/vocab_loader.h"

namespace artery::cli {
namespace {

constexpr std::size_t kTemplateBytesMax = 4 << 20;

Result<std::unique_ptr<model::Model>> load_weights(
    const model::ModelFile& file,
    Compute& compute,
    std::int64_t context_max,
    const LoadProgress& on_progress
) {
  const model::LoadOptions options{
      .kv_type = compute.kv_type,
      .context_max = context_max,
      .digest_folder = cache_folder(),
      .on_progress = on_progress,
  };
  try {
    return model::load_model(file, *compute.backend, options);
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "{}: the weights do not fit into memory", file.path());
  }
}

void warn_of_slow_types(const model::ModelInfo& info) {
  if (!info.slow_types.empty()) log_warn("{}", slow_types_advice(info));
}

// A folder's template is a file that can be mended: a server that starts without chat because of a
// mistake in it looks like one that works. A GGUF holds it among its weights; there the server says
// that chat is off and serves text completion (golden/models/bad-files).
bool is_file_to_mend(const model::ModelFile& file, const Error& template_error) {
  return !file.folder().empty() && template_error.code != Code::kUnsupported;
}

// Before anything is packed: a machine that is too small says so at once.
Result<> check_weights_fit(const model::ModelFile& file, const model::ModelInfo& info) {
  const std::int64_t usable = usable_memory_bytes();
  if (usable == 0 || info.weight_bytes <= usable) return {};
  return fail(
      Code::kOutOfMemory,
      "{}: the weights need {:.2f} GiB, {:.2f} GiB can be used",
      file.path(),
      static_cast<double>(info.weight_bytes) / (1 << 30),
      static_cast<double>(usable) / (1 << 30)
  );
}

}  // namespace

Result<tensor::KvType> kv_type_of(const ComputeWish& wish) {
  const bool reference = wish.numerics == "reference";
  if (wish.kv_cache_dtype == "auto") return reference ? tensor::KvType::kF64 : tensor::KvType::kI16;
  for (const auto type :
       {tensor::KvType::kI16V8, tensor::KvType::kI16, tensor::KvType::kF16, tensor::KvType::kF32})
    if (wish.kv_cache_dtype == tensor::name(type)) return type;
  return fail_field(
      "--kv-cache-dtype", "{} is none of int16v8, int16, f16, f32", wish.kv_cache_dtype
  );
}

Result<model::MemoryNeeds> model_needs(const model::ModelFile& file, const PlanFlags& flags) {
  return model::memory_needs(
      file,
      {
          .kv_type = flags.kv_type,
          .reference = flags.reference,
          .context = flags.max_model_len,
      }
  );
}

namespace {

std::int64_t store_bytes(kvstore::StoreConfig store, const model::KvLayout& layout) {
  if (store.folder.empty()) return 0;
  choose_sizes(store);
  return kv_memory_bytes(store, layout);
}

// Before the weights are read: a folder that cannot be used says so at once.
Result<> open_store(ServingWish& wish, const model::KvLayout& layout, LoadedModel& loaded) {
  wish.engine.windows_in_store = wish.kv.windows_in_store;
  wish.engine.window_ttl_s = wish.kv.window_ttl_s;
  wish.engine.swa_replay = wish.kv.swa_replay;
  if (!wish.kv.on()) return {};
  loaded.store = TRY(open_kv_store(wish.kv, layout, system_file_system(), system_clock()));
  if (loaded.store == nullptr) return {};
  wish.engine.store = loaded.store;
  wish.engine.cache_secret = loaded.store->secret();
  return {};
}

}  // namespace

Result<MemoryPlan> make_plan(
    const model::ModelFile& file, const model::ModelInfo& info, const PlanFlags& flags
) {
  const model::MemoryNeeds needs = TRY(model_needs(file, flags));
  auto plan = plan_memory(
      needs,
      {
          .model_context = info.context_length,
          .context_asked = flags.max_model_len,
          .pool_bytes_asked = flags.kv_pool_bytes,
          .sequences = flags.max_num_seqs,
          .batch = flags.max_num_batched_tokens,
          .threads = flags.threads,
          .store_bytes = store_bytes(flags.store, needs.kv),
          .process_bytes = anonymous_bytes(),
          .usable_bytes = memory_limit().available(),
      }
  );
  if (!plan && plan.error().code == Code::kOutOfMemory)
    return fail(Code::kOutOfMemory, "{}: {}", file.path(), plan.error().message);
  return plan;
}

ComputeWish compute_wish(const Options& options, bool has_kv_cache_dtype) {
  ComputeWish wish;
  wish.numerics = options.text("numerics");
  wish.isa = options.text("isa");
  wish.threads = static_cast<int>(options.integer("threads"));
  if (has_kv_cache_dtype) wish.kv_cache_dtype = options.text("kv-cache-dtype");
  return wish;
}

Result<Compute> make_compute(const ComputeWish& wish) {
  Result<tensor::Isa> isa = tensor::parse_isa(wish.isa);
  if (!isa) return fail_field("--isa", "{}", isa.error().message);
  const tensor::CpuLimits limits = tensor::cpu_limits();
  const int threads = wish.threads > 0 ? wish.threads : tensor::default_threads();
  if (limits.quota_cores > 0 && threads > limits.quota_cores)
    log_warn(
        "--threads {} exceeds the cgroup's CPU quota of {:.2f}: threads will be stopped for part "
        "of each period and decoding slows down; {} is the default here",
        threads,
        limits.quota_cores,
        tensor::default_threads()
    );
  else if (threads > limits.affinity)
    log_warn("--threads {} exceeds the {} CPUs this process may use", threads, limits.affinity);
  Compute compute;
  compute.kv_type = TRY(kv_type_of(wish));
  compute.pool = std::make_unique<tensor::ComputePool>(threads);
  compute.backend = wish.numerics == "reference" ? tensor::make_reference_backend(*compute.pool)
                                                 : tensor::make_fast_backend(*compute.pool, *isa);
  return compute;
}

Result<BareModel> load_bare_model(
    const std::string& path,
    const ComputeWish& wish,
    const LoadProgress& on_progress,
    std::shared_ptr<const codec::Tokenizer>* tokenizer
) {
  const std::unique_ptr<model::ModelFile> file = TRY(open_model_file(path));
  const model::ModelInfo info = TRY(model::check_model(*file));
  TRY(check_weights_fit(*file, info));
  warn_of_slow_types(info);
  BareModel bare;
  bare.compute = TRY(make_compute(wish));
  if (tokenizer != nullptr) *tokenizer = TRY(load_tokenizer(*file));
  bare.model = TRY(load_weights(*file, bare.compute, 0, on_progress));
  bare.quantized = mostly_quantized(*file);
  return bare;
}

namespace {

Result<> choose_chat_form(
    const model::ModelFile& file,
    const model::ModelInfo& info,
    const std::string& chosen,
    LoadedModel& loaded
) {
  loaded.deepseek = deepseek_format(chosen, info.architecture);
  if (loaded.deepseek) return check_deepseek_vocabulary(*loaded.deepseek, *loaded.tokenizer);
  auto chat_template = load_chat_template(&file, chosen, template_tokens(*loaded.tokenizer));
  if (chat_template) {
    loaded.chat_template = chat_template.take();
  } else if (!chosen.empty() || is_file_to_mend(file, chat_template.error())) {
    return tl::unexpected<Error>(chat_template.error());
  } else {
    loaded.chat_template_error = chat_template.error().message;
    log_warn("chat is off: {}", loaded.chat_template_error);
  }
  return {};
}

}  // namespace

Result<LoadedModel> load_serving(
    ServingWish wish, const LoadProgress& on_progress, engine::Observer observer, const Clock& clock
) {
  StartPhases phases(clock);
  std::unique_ptr<model::ModelFile> file = TRY(open_model_file(wish.model_path));
  phases.done("open");
  const model::ModelInfo info = TRY(model::check_model(*file));
  warn_of_slow_types(info);
  phases.done("check");
  LoadedModel loaded;
  loaded.tokenizer = TRY(load_tokenizer(*file));
  phases.done("tokenizer");
  TRY(choose_chat_form(*file, info, wish.chat_template, loaded));
  phases.done("template");
  loaded.compute = TRY(make_compute(wish.compute));
  PlanFlags flags{
      .kv_type = loaded.compute.kv_type,
      .reference = wish.compute.numerics == "reference",
      .threads = loaded.compute.pool->threads(),
      .max_model_len = wish.max_model_len,
      .kv_pool_bytes = wish.kv_pool_bytes,
      .max_num_seqs = wish.engine.max_num_seqs,
      .max_num_batched_tokens = wish.engine.max_num_batched_tokens,
      .store = wish.kv.store,
  };
  loaded.plan = TRY(make_plan(*file, info, flags));
  const model::MemoryNeeds needs = TRY(model_needs(*file, flags));
  TRY(open_store(wish, needs.kv, loaded));
  phases.done("store");
  if (wish.kv.on() && loaded.store == nullptr) {  // it could not be opened: its memory is free
    flags.store = {};
    loaded.plan = TRY(make_plan(*file, info, flags));
  }
  for (const std::string& line : plan_lines(loaded.plan)) log_info("{}", line);
  wish.engine.max_model_len = loaded.plan.context;
  wish.engine.kv_pool_bytes = loaded.plan.pool_bytes;
  std::unique_ptr<model::Model> model =
      TRY(load_weights(*file, loaded.compute, loaded.plan.context, on_progress));
  // Nothing reads the file from here on: it may shrink or go away.
  file.reset();
  phases.done("weights");
  log_info(
      "model={} threads={} isa={} numerics={}",
      model->info().name,
      loaded.compute.pool->threads(),
      tensor::name(loaded.compute.backend->isa()),
      model->kv_layout().numerics_id
  );
  const std::string digest = model->info().weights_digest;
  loaded.engine =
      TRY(engine::make_engine(std::move(model), std::move(wish.engine), clock, std::move(observer))
      );
  loaded.fingerprint = fingerprint(digest, loaded.engine->numerics_id());
  phases.done("engine");
  log_debug("{}", phases.text());
  return loaded;
}

Result<std::shared_ptr<const codec::Tokenizer>> load_tokenizer(const model::ModelFile& file) {
  if (!file.folder().empty()) {
    const model::TensorInfo* table = file.find("token_embd.weight");
    const auto rows = static_cast<std::size_t>(table == nullptr ? 0 : table->rows());
    HfTokenizerFiles files = TRY(load_hf_tokenizer(file.folder(), rows));
    return std::shared_ptr<const codec::Tokenizer>(std::move(files.tokenizer));
  }
  codec::VocabData vocab = TRY(load_vocab(file));
  return std::shared_ptr<const codec::Tokenizer>(TRY(codec::Tokenizer::make(std::move(vocab))));
}

codec::TemplateTokens template_tokens(const codec::Tokenizer& tokenizer) {
  const codec::VocabData& vocab = tokenizer.vocab();
  codec::TemplateTokens tokens;
  if (vocab.bos >= 0) tokens.bos = tokenizer.piece(vocab.bos);
  if (vocab.eos >= 0) tokens.eos = tokenizer.piece(vocab.eos);
  for (std::size_t id = 0; id < vocab.kinds.size(); ++id)
    if (vocab.kinds[id] == codec::TokenKind::kControl)
      tokens.control.emplace_back(tokenizer.piece(static_cast<TokenId>(id)));
  return tokens;
}

namespace {

// As codec/prompt/chat_template.h lists them.
bool names_a_built_in_form(std::string_view name) {
  return name == "chatml" || name == "llama2" || name == "llama3" || name == "mistral";
}

}  // namespace

Result<std::shared_ptr<const codec::ChatTemplate>> load_chat_template(
    const model::ModelFile* file, const std::string& chosen, codec::TemplateTokens tokens
) {
  std::string source = chosen;
  std::string place = "--chat-template";
  std::error_code why;
  if (!chosen.empty() && std::filesystem::exists(chosen, why)) {
    source = TRY(as_bad_file(system_file_system().read(chosen, kTemplateBytesMax)));
    place = chosen;
  } else if (!chosen.empty() && chosen.find_first_of("./{") != std::string::npos) {
    return fail(Code::kNotFound, "chat template {}: no such file", chosen);
  } else if (!chosen.empty() && !names_a_built_in_form(chosen)) {
    return fail(
        Code::kNotFound,
        "chat template {}: neither a file nor one of chatml, llama2, llama3, mistral (serve and "
        "run "
        "also know deepseek-v4, deepseek-v4.1)",
        chosen
    );
  }
  if (source.empty() && file != nullptr) {
    place = file->path();
    if (!file->folder().empty())
      source = TRY(folder_chat_template(file->folder(), &place));
    else if (file->find_key("tokenizer.chat_template") != nullptr)
      source = TRY(file->get_string("tokenizer.chat_template"));
  }
  if (source.empty()) {
    return fail(
        Code::kUnsupported,
        "the model file has no chat template: give one with --chat-template, or use text "
        "completion"
    );
  }
  auto made = codec::ChatTemplate::make(source, std::move(tokens));
  if (made) return std::shared_ptr<const codec::ChatTemplate>(made.take());
  if (made.error().code != Code::kBadFile) return tl::unexpected<Error>(made.error());
  const std::string_view advice =
      chosen.empty() ? "; mend it, or give another one with --chat-template" : "";
  return fail(Code::kBadFile, "{}: {}{}", place, made.error().message, advice);
}

std::string fingerprint(std::string_view weights_digest, std::string_view numerics_id) {
  const std::string both = fmt::format("{}\n{}", weights_digest, numerics_id);
  constexpr std::size_t kDigits = 12;
  return "fp_" + hex(sha256(std::as_bytes(std::span(both)))).substr(0, kDigits);
}

}  // namespace artery::cli
