#include "model/arch/decoder_weights.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "tensor/quant/decode.h"

namespace artery::model {
namespace {

using tensor::DType;

struct LinearSlot {
  std::string_view name;
  Linear DecoderLayer::* target;
  std::int64_t cols;
  std::int64_t rows;
  bool bias_required;
};

struct NormSlot {
  std::string_view name;
  tensor::WeightVector DecoderLayer::* target;
};

constexpr std::array kNorms = {
    NormSlot{"attn_norm", &DecoderLayer::attn_norm},
    NormSlot{"ffn_norm", &DecoderLayer::ffn_norm},
};

std::array<LinearSlot, 7> linear_slots(const DecoderSpec& spec) {
  const std::int64_t e = spec.embedding;
  const std::int64_t f = spec.feed_forward;
  const bool bias = spec.qkv_bias_required;
  return {{
      {"attn_q", &DecoderLayer::attn_q, e, spec.q_rows(), bias},
      {"attn_k", &DecoderLayer::attn_k, e, spec.kv_rows(), bias},
      {"attn_v", &DecoderLayer::attn_v, e, spec.kv_rows(), bias},
      {"attn_output", &DecoderLayer::attn_output, spec.q_rows(), e, false},
      {"ffn_gate", &DecoderLayer::ffn_gate, e, f, false},
      {"ffn_up", &DecoderLayer::ffn_up, e, f, false},
      {"ffn_down", &DecoderLayer::ffn_down, f, e, false},
  }};
}

std::string tensor_name(std::int64_t layer, std::string_view name, std::string_view part) {
  return fmt::format("blk.{}.{}.{}", layer, name, part);
}

bool is_vector_type(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

class Checker {
 public:
  Checker(const ModelFile& file, const DecoderSpec& spec) : file_(file), spec_(spec) {}

  Result<DecoderTensors> run() {
    const bool tied = file_.find("output.weight") == nullptr;
    TRY(matrix("token_embd.weight", spec_.embedding, spec_.vocab, tied));
    // An embedding that is not the output matrix is read one row a token.
    if (!tied) out_.read_bytes_per_token += out_.bytes / spec_.vocab;
    for (std::int64_t i = 0; i < spec_.layers; ++i) TRY(layer(i));
    TRY(vector("output_norm.weight", spec_.embedding, true));
    if (!tied) TRY(matrix("output.weight", spec_.embedding, spec_.vocab, true));
    TRY(vector("output.bias", spec_.vocab, false));
    TRY(vector("rope_freqs.weight", spec_.rope.dims / 2, false));
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
      if (file_.find(name) == nullptr) continue;
      return fail(
          Code::kUnsupported, "{}: tensor {}: longrope is not supported yet", file_.path(), name
      );
    }
    return std::move(out_);
  }

 private:
  Result<> layer(std::int64_t index) {
    for (const NormSlot& norm : kNorms)
      TRY(vector(tensor_name(index, norm.name, "weight"), spec_.embedding, true));
    for (const LinearSlot& slot : linear_slots(spec_)) {
      TRY(matrix(tensor_name(index, slot.name, "weight"), slot.cols, slot.rows, true));
      TRY(vector(tensor_name(index, slot.name, "bias"), slot.rows, slot.bias_required));
    }
    return {};
  }

  Result<> matrix(const std::string& name, std::int64_t cols, std::int64_t rows, bool multiplied) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return missing(name);
    TRY(shape(*info, {cols, rows}));
    if (!tensor::traits(info->type).is_weight) {
      return fail(
          Code::kUnsupported,
          "{}: tensor {} has type {}, which cannot hold weights",
          file_.path(),
          name,
          tensor::name(info->type)
      );
    }
    use(*info, cols * rows, multiplied);
    if (multiplied) out_.matrix_elements += cols * rows;
    return {};
  }

  Result<> vector(const std::string& name, std::int64_t size, bool required) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return required ? Result<>(missing(name)) : Result<>();
    TRY(shape(*info, {size}));
    if (!is_vector_type(info->type)) {
      return fail(
          Code::kBadFile,
          "{}: tensor {} has type {}: norms and biases must be F32 (or F16/BF16)",
          file_.path(),
          name,
          tensor::name(info->type)
      );
    }
    use(*info, size, true);
    return {};
  }

  void use(const TensorInfo& info, std::int64_t elements, bool per_token) {
    out_.used.push_back(&info);
    out_.parameters += elements;
    out_.bytes += static_cast<std::int64_t>(info.bytes);
    if (per_token) out_.read_bytes_per_token += static_cast<std::int64_t>(info.bytes);
  }

  tl::unexpected<Error> missing(const std::string& name) const {
    return fail(Code::kBadFile, "{}: missing tensor {}", file_.path(), name);
  }

  Result<> shape(const TensorInfo& info, const std::vector<std::int64_t>& expected) const {
    if (info.shape == expected) return {};
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

class Loader {
 public:
  Loader(
      const ModelFile& file,
      tensor::ComputePool& pool,
      const std::function<void(std::uint64_t)>& packed
  )
      : file_(file), pool_(pool), packed_(packed) {}

  Result<tensor::WeightMatrix> matrix(const std::string& name) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) return tensor::WeightMatrix();
    const auto raw = TRY(file_.rows(*info, 0, info->rows(), scratch_));
    auto packed =
        tensor::WeightMatrix::pack(info->type, info->shape[1], info->shape[0], raw, pool_);
    // Else the file's pages and the packed weights are in memory together until the load ends.
    file_.release(*info);
    if (packed) packed_(info->bytes);
    return packed;
  }

  Result<tensor::WeightVector> vector(const std::string& name) {
    const TensorInfo* info = file_.find(name);
    tensor::WeightVector out;
    if (info == nullptr) return out;
    out.resize(static_cast<std::size_t>(info->shape[0]));
    tensor::quant::decode_row(info->type, TRY(file_.rows(*info, 0, 1, scratch_)), out);
    packed_(info->bytes);
    return out;
  }

 private:
  const ModelFile& file_;
  tensor::ComputePool& pool_;
  const std::function<void(std::uint64_t)>& packed_;
  std::vector<std::byte> scratch_;
};

Result<DecoderLayer> load_layer(Loader& loader, const DecoderSpec& spec, std::int64_t index) {
  DecoderLayer layer;
  for (const NormSlot& norm : kNorms)
    layer.*norm.target = TRY(loader.vector(tensor_name(index, norm.name, "weight")));
  for (const LinearSlot& slot : linear_slots(spec)) {
    Linear& linear = layer.*slot.target;
    linear.weight = TRY(loader.matrix(tensor_name(index, slot.name, "weight")));
    linear.bias = TRY(loader.vector(tensor_name(index, slot.name, "bias")));
  }
  return layer;
}

}  // namespace

Result<DecoderTensors> check_decoder_tensors(const ModelFile& file, const DecoderSpec& spec) {
  return Checker(file, spec).run();
}

Result<DecoderWeights> load_decoder_weights(
    const ModelFile& file,
    const DecoderSpec& spec,
    tensor::ComputePool& pool,
    const std::function<void(std::uint64_t bytes)>& packed
) {
  Loader loader(file, pool, packed);
  DecoderWeights out;
  out.token_embedding = TRY(loader.matrix("token_embd.weight"));
  for (std::int64_t i = 0; i < spec.layers; ++i)
    out.layers.push_back(TRY(load_layer(loader, spec, i)));
  out.output_norm = TRY(loader.vector("output_norm.weight"));
  out.output.weight = TRY(loader.matrix("output.weight"));
  out.output.bias = TRY(loader.vector("output.bias"));
  out.rope_divisors = TRY(loader.vector("rope_freqs.weight"));
  return out;
}

}  // namespace artery::model
