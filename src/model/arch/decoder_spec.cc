#include "model/arch/decoder_spec.h"

#include <algorithm>
#include <charconv>

namespace artery::model {
namespace {

constexpr std::int64_t kHeadsMax = 1 << 16;
constexpr std::int64_t kHeadDimMax = 1 << 16;
constexpr std::int64_t kSizeMax = std::int64_t{1} << 32;
constexpr std::int64_t kContextMax = 1 << 28;
constexpr std::int64_t kExpertsMax = 1 << 16;

// One more than the largest N of the tensors named "blk.N.": what block_count can be at most.
std::int64_t blocks_in_file(const ModelFile& file) {
  std::int64_t blocks = 0;
  for (const TensorInfo& info : file.tensors()) {
    if (!info.name.starts_with("blk.")) continue;
    std::int64_t index = -1;
    std::from_chars(info.name.data() + 4, info.name.data() + info.name.size(), index);
    if (index < (std::int64_t{1} << 32)) blocks = std::max(blocks, index + 1);
  }
  return blocks;
}

Result<> read_vocabulary(const HyperParameters& hyper, DecoderSpec& spec) {
  const TensorInfo* table = hyper.file().find("token_embd.weight");
  if (table == nullptr) return hyper.fail(Code::kBadFile, "missing tensor token_embd.weight");
  if (table->shape.size() != 2) {
    return hyper.fail(
        Code::kBadFile,
        "tensor token_embd.weight has {} dimensions, expected 2",
        table->shape.size()
    );
  }
  if (table->shape[0] != spec.embedding) {
    return hyper.fail(
        Code::kBadFile,
        "{} is {} but token_embd.weight has {} columns",
        hyper.full("embedding_length"),
        spec.embedding,
        table->shape[0]
    );
  }
  spec.vocab = table->shape[1];
  if (spec.vocab > INT32_MAX)
    return hyper.fail(Code::kUnsupported, "a vocabulary of {} tokens is too large", spec.vocab);
  return {};
}

Result<> read_sizes(const HyperParameters& hyper, DecoderSpec& spec) {
  spec.layers = TRY(hyper.count("block_count", kSizeMax));
  const std::int64_t blocks = blocks_in_file(hyper.file());
  if (spec.layers > blocks) {
    return hyper.fail(
        Code::kBadFile,
        "{} is {} but the file has tensors for {} block{}: missing tensor "
        "blk.{}.attn_norm.weight",
        hyper.full("block_count"),
        spec.layers,
        blocks,
        blocks == 1 ? "" : "s",
        blocks
    );
  }
  spec.context = TRY(hyper.count("context_length", kContextMax));
  spec.embedding = TRY(hyper.count("embedding_length", kSizeMax));
  TRY(read_vocabulary(hyper, spec));
  // A mixture's file may have the size of its experts only.
  const bool needed = !hyper.has("expert_feed_forward_length");
  spec.feed_forward = needed ? TRY(hyper.count("feed_forward_length", kSizeMax))
                             : TRY(hyper.count_or("feed_forward_length", kSizeMax, 0));
  return {};
}

Result<> read_heads(const HyperParameters& hyper, DecoderSpec& spec) {
  spec.heads = TRY(hyper.count("attention.head_count", kHeadsMax));
  spec.kv_heads = TRY(hyper.count_or("attention.head_count_kv", kHeadsMax, spec.heads));
  if (spec.heads % spec.kv_heads != 0) {
    return hyper.fail(
        Code::kBadFile,
        "{} heads are not a multiple of {} key/value heads",
        spec.heads,
        spec.kv_heads
    );
  }
  if (!hyper.has("attention.key_length") && spec.embedding % spec.heads != 0) {
    return hyper.fail(
        Code::kBadFile,
        "embedding length {} is not a multiple of {} heads",
        spec.embedding,
        spec.heads
    );
  }
  spec.head_dim =
      TRY(hyper.count_or("attention.key_length", kHeadDimMax, spec.embedding / spec.heads));
  const std::int64_t value_dim =
      TRY(hyper.count_or("attention.value_length", kHeadDimMax, spec.head_dim));
  if (spec.head_dim > kHeadDimMax || value_dim != spec.head_dim) {
    return hyper.fail(
        Code::kUnsupported,
        "heads of {} key and {} value dimensions are not supported (equal sizes up to {})",
        spec.head_dim,
        value_dim,
        kHeadDimMax
    );
  }
  return {};
}

Result<> read_eps(const HyperParameters& hyper, DecoderSpec& spec) {
  spec.eps = static_cast<float>(TRY(hyper.number("attention.layer_norm_rms_epsilon")));
  if (spec.eps >= 0 && spec.eps <= 1) return {};
  return hyper.fail(
      Code::kBadFile,
      "{} is {}, expected 0 to 1",
      hyper.full("attention.layer_norm_rms_epsilon"),
      spec.eps
  );
}

// A flag of each layer, or the number of layers after which their kinds repeat.
Result<> read_pattern(const HyperParameters& hyper, int period, DecoderSpec& spec) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const GgufValue* given = hyper.file().find_key(hyper.full(kKey));
  if (given != nullptr && given->type == GgufType::kArray) {
    spec.windowed = TRY(hyper.flags(kKey));
    if (std::ssize(spec.windowed) == spec.layers) return {};
    return hyper.fail(
        Code::kBadFile,
        "{} has {} items, expected one for each of {} layers",
        hyper.full(kKey),
        spec.windowed.size(),
        spec.layers
    );
  }
  const std::int64_t every = TRY(hyper.count_or(kKey, kSizeMax, period));
  for (std::int64_t i = 0; i < spec.layers; ++i)
    spec.windowed.push_back(every == 0 || (i + 1) % every != 0);
  return {};
}

}  // namespace

Result<DecoderSpec> read_decoder_spec(
    const ModelFile& file, std::string_view architecture, tensor::RopeStyle style
) {
  const HyperParameters hyper(file, architecture);
  DecoderSpec spec;
  spec.architecture = architecture;
  TRY(read_sizes(hyper, spec));
  TRY(read_heads(hyper, spec));
  TRY(read_eps(hyper, spec));
  spec.rope = TRY(read_rope(hyper, style, spec.head_dim, spec.context));
  // sqrt is correctly rounded everywhere, so these bits are the machine's, not the C library's.
  const double scale = 1 / __builtin_sqrt(static_cast<double>(spec.head_dim));
  const double given = TRY(hyper.number_or("attention.scale", 0));
  spec.attention_scale = static_cast<float>(given == 0 ? scale : given);
  return spec;
}

Result<> read_windows(const HyperParameters& hyper, int period, DecoderSpec& spec) {
  const std::uint64_t window = TRY(hyper.unsigned_or_0("attention.sliding_window"));
  if (window == 0) return {};
  if (period == kOnlyListed && !hyper.has("attention.sliding_window_pattern")) return {};
  // Longer than any context is as good as the longest.
  spec.window = static_cast<int>(std::min(window, static_cast<std::uint64_t>(kContextMax)));
  spec.window_rope = spec.rope;
  return read_pattern(hyper, period, spec);
}

Result<> read_experts(const HyperParameters& hyper, tensor::RouterShape router, DecoderSpec& spec) {
  if (TRY(hyper.unsigned_or_0("expert_count")) == 0) return {};
  ExpertSpec& experts = spec.experts;
  experts.count = TRY(hyper.count("expert_count", kExpertsMax));
  experts.router = router;
  experts.router.used = static_cast<int>(TRY(hyper.count("expert_used_count", kExpertsMax)));
  if (experts.router.used > experts.count) {
    return hyper.fail(
        Code::kBadFile,
        "{} is {} but {} is {}",
        hyper.full("expert_used_count"),
        experts.router.used,
        hyper.full("expert_count"),
        experts.count
    );
  }
  experts.feed_forward =
      TRY(hyper.count_or("expert_feed_forward_length", kSizeMax, spec.feed_forward));
  experts.router.renormalize = TRY(hyper.flag_or("expert_weights_norm", router.renormalize));
  // llama.cpp's numbers: 1 softmax over all, 3 over the chosen; 2 is a sigmoid.
  const std::uint64_t function = TRY(hyper.unsigned_or_0("expert_gating_func"));
  if (function == 0 || function == (router.softmax_over_chosen ? 3u : 1u)) return {};
  return hyper.fail(
      Code::kUnsupported,
      "{} is {}: this way of weighing experts is not supported",
      hyper.full("expert_gating_func"),
      function
  );
}

Result<> refuse_the_rest(const HyperParameters& hyper, const DecoderSpec& spec) {
  const std::uint64_t experts = TRY(hyper.unsigned_or_0("expert_count"));
  if (experts > 0 && spec.experts.count == 0) {
    return hyper.fail(
        Code::kUnsupported,
        "{} is {}: experts in the family {} are not supported",
        hyper.full("expert_count"),
        experts,
        spec.architecture
    );
  }
  const std::uint64_t window = TRY(hyper.unsigned_or_0("attention.sliding_window"));
  if (window > 0 && spec.window == 0 && window < static_cast<std::uint64_t>(spec.context)) {
    return hyper.fail(
        Code::kUnsupported,
        "{} is {}, less than the context of {}: windows in the family {} are not supported",
        hyper.full("attention.sliding_window"),
        window,
        spec.context,
        spec.architecture
    );
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (TRY(hyper.number_or(key, 0)) == 0) continue;
    return hyper.fail(Code::kUnsupported, "{}: capped logits are not supported", hyper.full(key));
  }
  if (!TRY(hyper.flag_or("attention.causal", true)))
    return hyper.fail(Code::kUnsupported, "attention is not causal: not a text generation model");
  return {};
}

}  // namespace artery::model
