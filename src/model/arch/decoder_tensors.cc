#include "model/arch/decoder_tensors.h"

#include <fmt/format.h>

#include <algorithm>

namespace artery::model {
namespace {

using tensor::DType;

bool is_vector_type(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

void add_attention(const DecoderSpec& spec, LayerSlots& out) {
  const std::int64_t e = spec.embedding;
  const std::int64_t q = spec.q_rows();
  const std::int64_t kv = spec.kv_rows();
  const bool bias = spec.qkv_bias_required;
  out.vectors.push_back({"attn_norm.weight", e, &DecoderLayer::attn_norm});
  if (spec.qk_norms) {
    out.vectors.push_back({"attn_q_norm.weight", spec.head_dim, &DecoderLayer::attn_q_norm});
    out.vectors.push_back({"attn_k_norm.weight", spec.head_dim, &DecoderLayer::attn_k_norm});
  }
  if (spec.sinks) {
    out.vectors.push_back({"attn_sinks.weight", spec.heads, &DecoderLayer::attn_sinks});
  }
  if (spec.fused) {
    const std::vector<LinearPart> parts = {
        {&DecoderLayer::attn_q, q}, {&DecoderLayer::attn_k, kv}, {&DecoderLayer::attn_v, kv}
    };
    out.linears.push_back({.name = "attn_qkv", .cols = e, .parts = parts, .bias_required = bias});
  } else {
    out.linears.push_back({"attn_q", e, {{&DecoderLayer::attn_q, q}}, bias});
    out.linears.push_back({"attn_k", e, {{&DecoderLayer::attn_k, kv}}, bias});
    out.linears.push_back({"attn_v", e, {{&DecoderLayer::attn_v, kv}}, bias});
  }
  out.linears.push_back({"attn_output", q, {{&DecoderLayer::attn_output, e}}});
  if (spec.post_norms) {
    out.vectors.push_back({"post_attention_norm.weight", e, &DecoderLayer::attn_post_norm});
    out.vectors.push_back({"post_ffw_norm.weight", e, &DecoderLayer::ffn_post_norm});
  }
}

// Gate, up and down of a dense layer.
void add_dense(const DecoderSpec& spec, LayerSlots& out) {
  const std::int64_t e = spec.embedding;
  const std::int64_t f = spec.feed_forward;
  if (spec.fused) {
    const std::vector<LinearPart> parts = {
        {&DecoderLayer::ffn_gate, f}, {&DecoderLayer::ffn_up, f}
    };
    out.linears.push_back({.name = "ffn_up", .cols = e, .parts = parts});
  } else {
    out.linears.push_back({"ffn_gate", e, {{&DecoderLayer::ffn_gate, f}}});
    out.linears.push_back({"ffn_up", e, {{&DecoderLayer::ffn_up, f}}});
  }
  out.linears.push_back({"ffn_down", f, {{&DecoderLayer::ffn_down, e}}});
}

void add_experts(const DecoderSpec& spec, LayerSlots& out) {
  const std::int64_t e = spec.embedding;
  const std::int64_t f = spec.experts.feed_forward;
  out.linears.push_back(
      {.name = "ffn_gate_inp",
       .cols = e,
       .parts = {{&DecoderLayer::router, spec.experts.count}},
       .as_float = true}
  );
  out.experts.push_back(
      {"ffn_gate_exps", e, f, &DecoderLayer::expert_gate, &DecoderLayer::expert_gate_bias}
  );
  out.experts.push_back(
      {"ffn_up_exps", e, f, &DecoderLayer::expert_up, &DecoderLayer::expert_up_bias}
  );
  out.experts.push_back(
      {"ffn_down_exps", f, e, &DecoderLayer::expert_down, &DecoderLayer::expert_down_bias}
  );
  const std::int64_t shared = spec.experts.shared_feed_forward;
  if (shared == 0) return;
  out.linears.push_back(
      {.name = "ffn_gate_inp_shexp",
       .cols = e,
       .parts = {{&DecoderLayer::shared_router, 1}},
       .as_float = true}
  );
  out.linears.push_back({"ffn_gate_shexp", e, {{&DecoderLayer::ffn_gate, shared}}});
  out.linears.push_back({"ffn_up_shexp", e, {{&DecoderLayer::ffn_up, shared}}});
  out.linears.push_back({"ffn_down_shexp", shared, {{&DecoderLayer::ffn_down, e}}});
}

class Checker {
 public:
  Checker(const ModelFile& file, const DecoderSpec& spec) : file_(file), spec_(spec) {}

  Result<DecoderTensors> run() {
    const std::int64_t e = spec_.embedding;
    const bool tied = file_.find("output.weight") == nullptr;
    TRY(matrix("token_embd.weight", {e, spec_.vocab}, tied ? 1 : 0));
    // An embedding that is not the output matrix is read one row a token.
    if (!tied) out_.read_bytes_per_token += out_.bytes / spec_.vocab;
    const LayerSlots slots = layer_slots(spec_);
    for (std::int64_t i = 0; i < spec_.layers; ++i) TRY(layer(slots, i));
    TRY(vector("output_norm.weight", {e}, true));
    if (!tied) TRY(matrix("output.weight", {e, spec_.vocab}, 1));
    TRY(vector("output.bias", {spec_.vocab}, false));
    TRY(divisors());
    return std::move(out_);
  }

 private:
  using Shape = std::vector<std::int64_t>;

  Result<> layer(const LayerSlots& slots, std::int64_t index) {
    for (const VectorSlot& slot : slots.vectors)
      TRY(vector(layer_tensor(index, slot.name), {slot.size}, true));
    for (const LinearSlot& slot : slots.linears) TRY(linear(slot, index));
    for (const ExpertSlot& slot : slots.experts) TRY(experts(slot, index));
    return {};
  }

  Result<> linear(const LinearSlot& slot, std::int64_t index) {
    const std::string name = layer_tensor(index, slot.name, "weight");
    TRY(matrix(name, {slot.cols, slot.rows()}, 1));
    return vector(layer_tensor(index, slot.name, "bias"), {slot.rows()}, slot.bias_required);
  }

  Result<> experts(const ExpertSlot& slot, std::int64_t index) {
    const std::int64_t count = spec_.experts.count;
    const std::string name = layer_tensor(index, slot.name, "weight");
    const double share =
        static_cast<double>(spec_.experts.router.used) / static_cast<double>(count);
    TRY(matrix(name, {slot.cols, slot.rows, count}, share));
    return vector(layer_tensor(index, slot.name, "bias"), {slot.rows, count}, false);
  }

  Result<> divisors() {
    const std::int64_t half = spec_.rope.dims / 2;
    if (spec_.rope.short_context == 0) return vector("rope_freqs.weight", {half}, false);
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"})
      TRY(vector(name, {half}, true));
    return {};
  }

  // `share` of it is multiplied for one token.
  Result<> matrix(const std::string& name, const Shape& expected, double share) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return missing(name, expected);
    TRY(shape(*info, expected));
    if (!tensor::traits(info->type).is_weight) {
      return fail(
          Code::kUnsupported,
          "{}: tensor {} has type {}, which cannot hold weights",
          file_.path(),
          name,
          tensor::name(info->type)
      );
    }
    use(*info, share);
    const auto elements = static_cast<double>(info->cols() * info->rows());
    out_.matrix_elements += static_cast<std::int64_t>(elements * share);
    return {};
  }

  Result<> vector(const std::string& name, const Shape& expected, bool required) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return required ? Result<>(missing(name, expected)) : Result<>();
    TRY(shape(*info, expected));
    if (!is_vector_type(info->type)) {
      return fail(
          Code::kBadFile,
          "{}: tensor {} has type {}: norms and biases must be F32 (or F16/BF16)",
          file_.path(),
          name,
          tensor::name(info->type)
      );
    }
    use(*info, 1);
    return {};
  }

  void use(const TensorInfo& info, double share) {
    out_.used.push_back(&info);
    out_.parameters += info.cols() * info.rows();
    out_.bytes += static_cast<std::int64_t>(info.bytes);
    const double read = share * static_cast<double>(info.bytes);
    out_.read_bytes_per_token += static_cast<std::int64_t>(read);
  }

  tl::unexpected<Error> missing(const std::string& name, const Shape& expected) const {
    return fail(
        Code::kBadFile,
        "{}: missing tensor {}, expected with shape [{}]",
        file_.path(),
        name,
        fmt::join(expected, ", ")
    );
  }

  // Some converters drop dimensions of 1.
  Result<> shape(const TensorInfo& info, const Shape& expected) const {
    const auto bare = [](Shape dims) {
      while (dims.size() > 1 && dims.back() == 1) dims.pop_back();
      return dims;
    };
    if (bare(info.shape) == bare(expected)) return {};
    return fail(
        Code::kBadFile,
        "{}: tensor {} has shape [{}], expected [{}]",
        file_.path(),
        info.name,
        fmt::join(info.shape, ", "),
        fmt::join(expected, ", ")
    );
  }

  const ModelFile& file_;
  const DecoderSpec& spec_;
  DecoderTensors out_;
};

}  // namespace

std::int64_t LinearSlot::rows() const {
  std::int64_t sum = 0;
  for (const LinearPart& part : parts) sum += part.rows;
  return sum;
}

LayerSlots layer_slots(const DecoderSpec& spec) {
  LayerSlots out;
  add_attention(spec, out);
  out.vectors.push_back(
      {spec.post_attention_is_ffn_norm ? "post_attention_norm.weight" : "ffn_norm.weight",
       spec.embedding,
       &DecoderLayer::ffn_norm}
  );
  if (spec.experts.count > 0) {
    add_experts(spec, out);
  } else {
    add_dense(spec, out);
  }
  return out;
}

std::string layer_tensor(std::int64_t layer, std::string_view name, std::string_view part) {
  return part.empty() ? fmt::format("blk.{}.{}", layer, name)
                      : fmt::format("blk.{}.{}.{}", layer, name, part);
}

Result<DecoderTensors> check_decoder_tensors(const ModelFile& file, const DecoderSpec& spec) {
  return Checker(file, spec).run();
}

}  // namespace artery::model
