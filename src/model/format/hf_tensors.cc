#include "model/format/hf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "model/format/text.h"

namespace artery::model {
namespace {

using Kind = HfRecipe::Kind;
using tensor::DType;

constexpr std::int64_t kFp8Block = 128;

struct Source {
  std::string_view name;
  std::uint32_t file = 0;
  const StTensor* tensor = nullptr;
  const std::string* path = nullptr;
  mutable bool used = false;
};

class Mapper {
 public:
  Mapper(
      const std::string& folder,
      const HfConfig& config,
      const HfFamily& family,
      const HfSizes& sizes,
      std::span<const SafetensorsFile> shards
  )
      : folder_(folder), config_(config), family_(family), sizes_(sizes) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      for (const StTensor& tensor : shards[i].tensors()) {
        sources_.push_back(
            {tensor.name, static_cast<std::uint32_t>(i + 1), &tensor, &shards[i].path()}
        );
      }
    }
    std::ranges::sort(sources_, {}, &Source::name);
  }

  Result<HfTensors> run(std::span<const HfMadeTensor> made) {
    find_prefix();
    TRY(top());
    for (std::int64_t i = 0; i < sizes_.layers; ++i)
      for (const HfLine& line : family_.layer) TRY(layer_line(i, line));
    for (const HfMadeTensor& one : made) add_made(one);
    TRY(check_rest());
    return std::move(out_);
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) const {
    return fail(Code::kBadFile, "{}: {}", folder_, fmt::format(text, std::forward<Args>(args)...));
  }

  const Source* find(std::string_view name) const {
    const auto at = std::ranges::lower_bound(sources_, name, {}, &Source::name);
    return at != sources_.end() && at->name == name ? &*at : nullptr;
  }

  Result<const Source*> need(const std::string& name) const {
    const Source* source = find(name);
    if (source != nullptr) return source;
    return bad(
        "missing tensor {} (config.json: {}, num_hidden_layers {})",
        name,
        family_.model_type,
        sizes_.layers
    );
  }

  // Multimodal checkpoints hold the language model under a name of its own.
  void find_prefix() {
    for (const char* prefix : {"model.", "language_model.model.", "model.language_model.", ""}) {
      if (find(std::string(prefix) + "embed_tokens.weight") == nullptr) continue;
      prefix_ = prefix;
      return;
    }
  }

  Result<> top() {
    constexpr HfLine kEmbedding{"embed_tokens", "token_embd", HfDim::kVocab, HfDim::kHidden};
    constexpr HfLine kNorm{"norm", "output_norm", HfDim::kHidden, HfDim::kNone, HfLayout::kNorm};
    constexpr HfLine kHead{"lm_head", "output", HfDim::kVocab, HfDim::kHidden};
    TRY(single(prefix_, "", kEmbedding));
    TRY(single(prefix_, "", kNorm));
    std::string head;
    for (const char* prefix : {"", "language_model.", "model."}) {
      if (find(fmt::format("{}lm_head.weight", prefix)) == nullptr) continue;
      head = prefix;
      break;
    }
    const Source* found = find(head + "lm_head.weight");
    const bool tied = TRY(config_.flag_or("tie_word_embeddings", found == nullptr || family_.tied));
    if (!tied && found == nullptr) {
      return bad("missing tensor lm_head.weight (config.json: tie_word_embeddings is false)");
    }
    if (!tied) return single(head, "", kHead);
    if (found != nullptr) found->used = true;
    return {};
  }

  Result<> layer_line(std::int64_t layer, const HfLine& line) {
    const std::string prefix = fmt::format("{}layers.{}.", prefix_, layer);
    const std::string block = fmt::format("blk.{}.", layer);
    switch (line.layout) {
      case HfLayout::kExperts:
        return experts(prefix, block, line);
      case HfLayout::kOssGate:
      case HfLayout::kOssUp:
      case HfLayout::kOssDown:
        return oss(prefix, block, line);
      default:
        return single(prefix, block, line);
    }
  }

  // The shape of `source` is `expected`, slowest dimension first.
  Result<> check_shape(
      const Source& source, const std::vector<std::int64_t>& expected, const HfLine& line
  ) const {
    if (source.tensor->shape == expected) return {};
    std::string why = sizes_.text(line.rows);
    if (line.cols != HfDim::kNone) why += ", " + sizes_.text(line.cols);
    return bad(
        "tensor {} in {} has shape [{}], expected [{}] (config.json: {})",
        printable(source.name),
        *source.path,
        fmt::join(source.tensor->shape, ", "),
        fmt::join(expected, ", "),
        why
    );
  }

  static bool is_float(StType type) {
    return type == StType::kF32 || type == StType::kF16 || type == StType::kBF16;
  }

  Result<> check_float(const Source& source) const {
    if (is_float(source.tensor->type)) return {};
    return fail(
        Code::kUnsupported,
        "{}: tensor {} has dtype {}, expected BF16, F16, F32{}",
        folder_,
        printable(source.name),
        name(source.tensor->type),
        source.tensor->shape.size() > 1 ? " or F8_E4M3" : ""
    );
  }

  static HfPart part(const Source& source) {
    source.used = true;
    return {source.file, source.tensor->offset, source.tensor->bytes};
  }

  // The e-th of `count` equal matrices in one tensor.
  static HfPart slice(const Source& source, std::int64_t e, std::int64_t count) {
    HfPart out = part(source);
    out.bytes /= static_cast<std::uint64_t>(count);
    out.offset += static_cast<std::uint64_t>(e) * out.bytes;
    return out;
  }

  void add(
      std::string target,
      DType type,
      std::vector<std::int64_t> shape,
      const Source& source,
      HfRecipe recipe
  ) {
    TensorInfo info;
    info.name = std::move(target);
    info.type = type;
    info.shape = std::move(shape);
    info.bytes = static_cast<std::uint64_t>(tensor::row_bytes(type, info.cols()) * info.rows());
    info.file = recipe.parts[0].file;
    info.offset = recipe.parts[0].offset;
    info.source = source.name;
    info.source_type = name(source.tensor->type);
    out_.tensors.push_back(std::move(info));
    out_.recipes.push_back(std::move(recipe));
  }

  void add_made(const HfMadeTensor& made) {
    TensorInfo info;
    info.name = made.name;
    info.shape = {std::ssize(made.values)};
    info.bytes = made.values.size() * sizeof(float);
    info.source = made.source;
    HfRecipe recipe{.kind = Kind::kOwned};
    recipe.owned.assign(reinterpret_cast<const char*>(made.values.data()), info.bytes);
    out_.tensors.push_back(std::move(info));
    out_.recipes.push_back(std::move(recipe));
  }

  std::int64_t head_rows(const HfLine& line) const {
    const bool heads = line.layout == HfLayout::kQ || line.layout == HfLayout::kK;
    return heads && family_.rotates_pairs ? sizes_.head_dim : 0;
  }

  Result<> single(const std::string& prefix, const std::string& block, const HfLine& line) {
    const bool bare = line.layout == HfLayout::kBare;
    const std::string base = fmt::format("{}{}", prefix, line.source);
    const Source& source = *TRY(need(bare ? base : base + ".weight"));
    const std::string target = fmt::format("{}{}.weight", block, line.target);
    const std::int64_t rows = sizes_.of(line.rows);
    if (line.cols == HfDim::kNone) return vector(source, target, rows, line);
    const std::int64_t cols = sizes_.of(line.cols);
    TRY(check_shape(source, {rows, cols}, line));
    std::vector<std::int64_t> shape{cols, rows};
    if (line.layout == HfLayout::kRowVector) shape = {cols};
    HfRecipe recipe{.source_rows = rows, .source_cols = cols, .rows = rows};
    recipe.parts = {part(source)};
    recipe.head_rows = head_rows(line);
    const DType type = TRY(weight_type(source, base, recipe));
    add(target, type, std::move(shape), source, std::move(recipe));
    return bias(base, fmt::format("{}{}.bias", block, line.target), line);
  }

  Result<> vector(
      const Source& source, const std::string& target, std::int64_t size, const HfLine& line
  ) {
    TRY(check_shape(source, {size}, line));
    TRY(check_float(source));
    HfRecipe recipe{.source_type = plain_type(source.tensor->type)};
    recipe.parts = {part(source)};
    DType type = recipe.source_type;
    // Value by value, so that a bias follows the order of its matrix's rows.
    recipe.source_rows = recipe.rows = size;
    recipe.source_cols = 1;
    recipe.head_rows = head_rows(line);
    if (line.layout == HfLayout::kNorm && family_.norm_adds_one) {
      recipe.kind = Kind::kAddOne;
      recipe.source_rows = recipe.rows = 1;
      recipe.source_cols = size;
      type = DType::kF32;
    }
    add(target, type, {size}, source, std::move(recipe));
    return {};
  }

  Result<> bias(const std::string& base, const std::string& target, const HfLine& line) {
    const Source* source = find(base + ".bias");
    const bool attention = line.source.starts_with("self_attn.");
    if (attention && config_.has("attention_bias")) {
      const bool wanted = TRY(config_.flag_or("attention_bias", false));
      if (wanted != (source != nullptr)) {
        return bad(
            "config.json: attention_bias is {}, but tensor {}.bias is {}",
            wanted,
            base,
            wanted ? "missing" : "there"
        );
      }
    }
    return source == nullptr ? Result<>() : vector(*source, target, sizes_.of(line.rows), line);
  }

  // What rows of `source` become: floats as they are, FP8 with its scales. `base`: its name without
  // ".weight".
  Result<DType> weight_type(const Source& source, const std::string& base, HfRecipe& recipe) const {
    if (source.tensor->type != StType::kF8E4M3) {
      TRY(check_float(source));
      recipe.source_type = plain_type(source.tensor->type);
      return recipe.source_type;
    }
    const Source* scales = nullptr;
    for (const char* suffix : {".weight_scale_inv", ".weight_scale", ".scale"})
      if (scales == nullptr) scales = find(base + suffix);
    if (scales == nullptr) {
      return bad(
          "tensor {} has dtype F8_E4M3, but there is no {}.weight_scale_inv or weight_scale",
          printable(source.name),
          base
      );
    }
    TRY(scale_blocks(*scales, recipe));
    recipe.scales.push_back(part(*scales));
    // One scale must stand for each whole block of 128 columns; other shapes are rare.
    const bool fits =
        recipe.source_cols % kFp8Block == 0 &&
        (recipe.scale_cols % kFp8Block == 0 || recipe.scale_cols >= recipe.source_cols);
    recipe.kind = fits ? Kind::kFp8 : Kind::kFp8Decoded;
    return fits ? DType::kF8E4M3 : DType::kF32;
  }

  // One scale for the tensor, for each row, or for each block.
  Result<> scale_blocks(const Source& scales, HfRecipe& recipe) const {
    const StTensor& tensor = *scales.tensor;
    const bool number = is_float(tensor.type) || tensor.type == StType::kF8E8M0;
    const std::int64_t rows = recipe.source_rows;
    const std::int64_t cols = recipe.source_cols;
    const auto [block_rows, block_cols] = TRY(block_size());
    auto blocks = [](std::int64_t size, std::int64_t block) { return (size + block - 1) / block; };
    const std::vector<std::int64_t> by_block{blocks(rows, block_rows), blocks(cols, block_cols)};
    const std::vector<std::int64_t> by_row{rows, 1};
    std::int64_t scale_rows = 0;
    std::int64_t scale_cols = cols;
    if (number && tensor.elements() == 1) {
      scale_rows = rows;
    } else if (number && tensor.shape == by_block) {
      scale_rows = block_rows;
      scale_cols = block_cols;
    } else if (number && (tensor.shape == by_row || tensor.shape == std::vector{rows})) {
      scale_rows = 1;
    }
    if (scale_rows == 0) {
      return bad(
          "tensor {} ({} [{}]) fits no scales of a matrix [{}, {}]: expected one, [{}, 1] or [{}]",
          printable(scales.name),
          name(tensor.type),
          fmt::join(tensor.shape, ", "),
          rows,
          cols,
          rows,
          fmt::join(by_block, ", ")
      );
    }
    const bool same = recipe.scales.empty() ||
                      (recipe.scale_type == tensor.type && recipe.scale_rows == scale_rows &&
                       recipe.scale_cols == scale_cols);
    if (!same) return bad("tensor {}: scales unlike those before it", printable(scales.name));
    recipe.scale_type = tensor.type;
    recipe.scale_rows = scale_rows;
    recipe.scale_cols = scale_cols;
    return {};
  }

  Result<std::pair<std::int64_t, std::int64_t>> block_size() const {
    std::pair<std::int64_t, std::int64_t> out{kFp8Block, kFp8Block};
    const JsonValue* quantization = config_.find("quantization_config");
    const JsonValue* size =
        quantization == nullptr ? nullptr : quantization->find("weight_block_size");
    if (size == nullptr || size->is_null()) return out;
    const auto* pair = size->array();
    const bool two = pair != nullptr && pair->size() == 2 && (*pair)[0].integer() != nullptr &&
                     (*pair)[1].integer() != nullptr && *(*pair)[0].integer() > 0 &&
                     *(*pair)[1].integer() > 0;
    if (!two) {
      return config_.fail(
          Code::kBadFile, "quantization_config.weight_block_size must be two numbers above 0"
      );
    }
    return std::pair{*(*pair)[0].integer(), *(*pair)[1].integer()};
  }

  Result<> experts(const std::string& prefix, const std::string& block, const HfLine& line) {
    const std::int64_t rows = sizes_.of(line.rows);
    const std::int64_t cols = sizes_.of(line.cols);
    const std::int64_t count = sizes_.experts;
    const std::string target = fmt::format("{}{}.weight", block, line.target);
    HfRecipe recipe{.source_rows = rows, .source_cols = cols, .rows = rows};
    if (const Source* all = fused(prefix, line)) {
      recipe.source_rows = rows * line.fused_parts;
      recipe.first = rows * line.fused_part;
      TRY(check_shape(*all, {count, recipe.source_rows, cols}, line));
      TRY(check_float(*all));
      recipe.source_type = plain_type(all->tensor->type);
      for (std::int64_t e = 0; e < count; ++e) recipe.parts.push_back(slice(*all, e, count));
      add(target, recipe.source_type, {cols, rows, count}, *all, std::move(recipe));
      return {};
    }
    const std::size_t star = line.source.find('*');
    const Source* first = nullptr;
    std::optional<DType> type;
    for (std::int64_t e = 0; e < count; ++e) {
      const std::string base = fmt::format(
          "{}{}{}{}", prefix, line.source.substr(0, star), e, line.source.substr(star + 1)
      );
      const Source& source = *TRY(need(base + ".weight"));
      TRY(check_shape(source, {rows, cols}, line));
      if (first == nullptr) first = &source;
      if (source.tensor->type != first->tensor->type) {
        return bad(
            "tensor {} has dtype {}, but that of the first expert has {}",
            printable(source.name),
            name(source.tensor->type),
            name(first->tensor->type)
        );
      }
      recipe.parts.push_back(part(source));
      type = TRY(weight_type(source, base, recipe));
    }
    add(target, *type, {cols, rows, count}, *first, std::move(recipe));
    return {};
  }

  const Source* fused(const std::string& prefix, const HfLine& line) const {
    return line.fused.empty() ? nullptr : find(fmt::format("{}{}", prefix, line.fused));
  }

  // gpt-oss: experts in one tensor, gate and up in alternate rows; as MXFP4 blocks and scales, or
  // as floats laid out [in, out].
  Result<> oss(const std::string& prefix, const std::string& block, const HfLine& line) {
    const bool down = line.layout == HfLayout::kOssDown;
    const std::string base = fmt::format("{}{}", prefix, line.source);
    const std::string target = fmt::format("{}{}", block, line.target);
    const std::int64_t rows = sizes_.of(line.rows);
    const std::int64_t cols = sizes_.of(line.cols);
    const std::int64_t count = sizes_.experts;
    HfRecipe recipe;
    recipe.rows = rows;
    recipe.stride = down ? 1 : 2;
    recipe.first = line.layout == HfLayout::kOssUp ? 1 : 0;
    const std::int64_t all_rows = rows * recipe.stride;
    const HfRecipe order = recipe;
    const Source* blocks = find(base + "_blocks");
    const Source& source = blocks != nullptr ? *blocks : *TRY(need(base));
    if (blocks != nullptr) {
      TRY(oss_blocks(source, base, line, all_rows, recipe));
    } else {
      TRY(check_shape(source, {count, cols, all_rows}, line));
      TRY(check_float(source));
      recipe.kind = Kind::kTransposed;
      recipe.source_type = plain_type(source.tensor->type);
      recipe.source_rows = cols;
      recipe.source_cols = all_rows;
    }
    for (std::int64_t e = 0; e < count; ++e) recipe.parts.push_back(slice(source, e, count));
    const DType type = blocks != nullptr ? DType::kMXFP4 : recipe.source_type;
    add(target + ".weight", type, {cols, rows, count}, source, std::move(recipe));
    return oss_bias(base + "_bias", target + ".bias", line, all_rows, order);
  }

  Result<> oss_blocks(
      const Source& source,
      const std::string& base,
      const HfLine& line,
      std::int64_t all_rows,
      HfRecipe& recipe
  ) const {
    const std::int64_t cols = sizes_.of(line.cols);
    const std::int64_t count = sizes_.experts;
    const Source& scales = *TRY(need(base + "_scales"));
    TRY(check_shape(source, {count, all_rows, cols / 32, 16}, line));
    TRY(check_shape(scales, {count, all_rows, cols / 32}, line));
    const bool bytes = bits(source.tensor->type) == 8 && bits(scales.tensor->type) == 8;
    if (!bytes || cols % 32 != 0) {
      return bad(
          "tensor {} ({}) and its scales ({}) are no MXFP4 of {} columns",
          printable(source.name),
          name(source.tensor->type),
          name(scales.tensor->type),
          cols
      );
    }
    recipe.kind = Kind::kMxfp4;
    recipe.source_rows = all_rows;
    recipe.source_cols = cols;
    for (std::int64_t e = 0; e < count; ++e) recipe.scales.push_back(slice(scales, e, count));
    return {};
  }

  Result<> oss_bias(
      const std::string& name,
      const std::string& target,
      const HfLine& line,
      std::int64_t all_rows,
      HfRecipe recipe
  ) {
    const Source& source = *TRY(need(name));
    TRY(check_shape(source, {sizes_.experts, all_rows}, line));
    TRY(check_float(source));
    recipe.source_type = plain_type(source.tensor->type);
    recipe.source_rows = all_rows;
    recipe.source_cols = 1;
    for (std::int64_t e = 0; e < sizes_.experts; ++e)
      recipe.parts.push_back(slice(source, e, sizes_.experts));
    add(target, recipe.source_type, {recipe.rows, sizes_.experts}, source, std::move(recipe));
    return {};
  }

  static bool harmless(std::string_view name) {
    constexpr std::array<std::string_view, 8> kSuffixes = {
        "rotary_emb.inv_freq",
        ".input_scale",
        ".activation_scale",
        ".output_scale",
        ".q_scale",
        ".k_scale",
        ".v_scale",
        ".input_scale_ub",
    };
    return std::ranges::any_of(kSuffixes, [&](std::string_view end) {
      return name.ends_with(end);
    });
  }

  // What is left over inside the layers would change what the model computes; beside them it is
  // another model's (a vision tower).
  Result<> check_rest() {
    const std::string layers = prefix_ + "layers.";
    std::vector<std::string> beside;
    for (const Source& source : sources_) {
      if (source.used || harmless(source.name)) continue;
      if (!source.name.starts_with(layers)) {
        beside.push_back(printable(source.name));
        continue;
      }
      std::int64_t index = -1;
      const std::string_view rest = source.name.substr(layers.size());
      std::from_chars(rest.data(), rest.data() + rest.size(), index);
      if (index >= sizes_.layers) {
        return bad(
            "config.json: num_hidden_layers is {}, but there is tensor {}",
            sizes_.layers,
            printable(source.name)
        );
      }
      return bad(
          "tensor {} in {} has no place in a {} model",
          printable(source.name),
          *source.path,
          family_.model_type
      );
    }
    if (beside.empty()) return {};
    const std::size_t shown = std::min<std::size_t>(beside.size(), 5);
    out_.warnings.push_back(fmt::format(
        "{}: {} tensors are not used: {}{}",
        folder_,
        beside.size(),
        fmt::join(beside.begin(), beside.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
        beside.size() > shown ? ", ..." : ""
    ));
    return {};
  }

  const std::string& folder_;
  const HfConfig& config_;
  const HfFamily& family_;
  const HfSizes& sizes_;
  std::vector<Source> sources_;  // by name
  std::string prefix_ = "model.";
  HfTensors out_;
};

}  // namespace

Result<HfTensors> map_hf_tensors(
    const std::string& folder,
    const HfConfig& config,
    const HfFamily& family,
    const HfSizes& sizes,
    std::span<const SafetensorsFile> shards,
    std::span<const HfMadeTensor> made
) {
  return Mapper(folder, config, family, sizes, shards).run(made);
}

}  // namespace artery::model
