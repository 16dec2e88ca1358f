#include "model/arch/decoder_spec.h"

#include <charconv>

#include "tensor/math.h"

namespace artery::model {
namespace {

constexpr std::int64_t kHeadsMax = 1 << 16;
constexpr std::int64_t kHeadDimMax = 1 << 16;
constexpr std::int64_t kSizeMax = std::int64_t{1} << 32;
constexpr std::int64_t kContextMax = 1 << 28;

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

Result<> refuse_unsupported(const HyperParameters& hyper, std::int64_t context) {
  if (hyper.has("expert_count")) {
    const std::uint64_t experts = TRY(hyper.file().get_unsigned(hyper.full("expert_count")));
    if (experts > 0) {
      return hyper.fail(
          Code::kUnsupported,
          "{} is {}: mixtures of experts are not supported yet",
          hyper.full("expert_count"),
          experts
      );
    }
  }
  if (hyper.has("attention.sliding_window")) {
    const std::uint64_t window =
        TRY(hyper.file().get_unsigned(hyper.full("attention.sliding_window")));
    if (window != 0 && window < static_cast<std::uint64_t>(context)) {
      return hyper.fail(
          Code::kUnsupported,
          "{} is {}, less than the context of {}: sliding-window attention is not supported yet",
          hyper.full("attention.sliding_window"),
          window,
          context
      );
    }
  }
  if (hyper.has("attention.causal") && !TRY(hyper.file().get_bool(hyper.full("attention.causal"))))
    return hyper.fail(Code::kUnsupported, "attention is not causal: not a text generation model");
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
  spec.feed_forward = TRY(hyper.count("feed_forward_length", kSizeMax));
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

}  // namespace

Result<DecoderSpec> read_decoder_spec(
    const ModelFile& file, std::string_view architecture, tensor::RopeStyle style
) {
  const HyperParameters hyper(file, architecture);
  DecoderSpec spec;
  spec.architecture = architecture;
  TRY(read_sizes(hyper, spec));
  TRY(read_heads(hyper, spec));
  TRY(refuse_unsupported(hyper, spec.context));
  spec.eps = static_cast<float>(TRY(hyper.number("attention.layer_norm_rms_epsilon")));
  if (!(spec.eps >= 0) || spec.eps > 1) {
    return hyper.fail(
        Code::kBadFile,
        "{} is {}, expected 0 to 1",
        hyper.full("attention.layer_norm_rms_epsilon"),
        spec.eps
    );
  }
  spec.rope = TRY(read_rope(hyper, style, spec.head_dim, spec.context));
  // sqrt is correctly rounded everywhere, so these bits are the machine's, not the C library's.
  const double scale = 1 / __builtin_sqrt(static_cast<double>(spec.head_dim));
  const double given = TRY(hyper.number_or("attention.scale", 0));
  spec.attention_scale = static_cast<float>(given == 0 ? scale : given);
  return spec;
}

}  // namespace artery::model
