#include "cli/vocab_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "codec/bpe/pre_tokenizer.h"
#include "codec/end_tokens.h"
#include "codec/infill.h"

namespace artery::cli {
namespace {

using codec::TokenizerModel;
using codec::TokenKind;
using codec::VocabData;
using model::ModelFile;

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

class VocabReader {
 public:
  VocabReader(const ModelFile& file, std::vector<std::string>& warnings)
      : file_(file), warnings_(warnings) {}

  Result<VocabData> read() {
    TRY(read_model());
    TRY(read_tokens());
    TRY(read_scores());
    TRY(read_kinds());
    TRY(read_merges());
    TRY(read_ids());
    TRY(read_flags());
    codec::collect_end_tokens(data_);
    codec::find_infill_tokens(data_);
    warn_of_equal_tokens();
    return std::move(data_);
  }

 private:
  bool has(std::string_view key) const { return file_.find_key(key) != nullptr; }
  bool is_spm() const { return data_.model == TokenizerModel::kSentencePiece; }

  Result<> read_model() {
    const std::string_view model = TRY(file_.get_string("tokenizer.ggml.model"));
    if (model == "gpt2") {
      data_.model = TokenizerModel::kByteLevelBpe;
    } else if (model == "llama") {
      data_.model = TokenizerModel::kSentencePiece;
    } else {
      return fail(
          Code::kUnsupported,
          "{}: unknown tokenizer.ggml.model '{}'; this build knows gpt2 (byte-level BPE) and llama "
          "(SentencePiece)",
          file_.path(),
          model
      );
    }
    if (!has("tokenizer.ggml.pre")) return {};
    data_.pre = TRY(file_.get_string("tokenizer.ggml.pre"));
    return {};
  }

  Result<> read_tokens() {
    const auto tokens = TRY(file_.get_strings(kTokens));
    if (tokens.empty()) return fail(Code::kBadFile, "{}: {} is empty", file_.path(), kTokens);
    data_.tokens.assign(tokens.begin(), tokens.end());
    return {};
  }

  Result<> read_scores() {
    constexpr std::string_view kScores = "tokenizer.ggml.scores";
    if (!has(kScores) && !is_spm()) return {};
    data_.scores = TRY(file_.get_floats(kScores));
    const std::size_t count = data_.tokens.size();
    if (data_.scores.size() == count) return {};
    return fail(
        Code::kBadFile,
        "{}: {} scores for {} tokens in {}; the file is damaged or was converted badly",
        file_.path(),
        data_.scores.size(),
        count,
        kScores
    );
  }

  Result<> read_kinds() {
    constexpr std::string_view kKinds = "tokenizer.ggml.token_type";
    const std::size_t count = data_.tokens.size();
    data_.kinds.assign(count, TokenKind::kNormal);
    if (!has(kKinds)) {
      mark_bytes();
      return {};
    }
    const auto kinds = TRY(file_.get_integers(kKinds));
    if (kinds.size() != count)
      return fail(
          Code::kBadFile,
          "{}: {} token types for {} tokens in {}; the file is damaged or was converted badly",
          file_.path(),
          kinds.size(),
          count,
          kKinds
      );
    for (std::size_t id = 0; id < count; ++id) {
      // 0 is "undefined" in ggml's list; anything else unknown is no token to match either.
      const bool known = kinds[id] >= 1 && kinds[id] <= 6;
      data_.kinds[id] = known ? static_cast<TokenKind>(kinds[id]) : TokenKind::kUnused;
      if (kinds[id] == 0) data_.kinds[id] = TokenKind::kNormal;
      if (is_padding_row(id)) data_.kinds[id] = TokenKind::kUnused;
    }
    return {};
  }

  // Converters fill embedding rows without a token with "[PAD<id>]", which older ones called
  // user-defined. No text means them.
  bool is_padding_row(std::size_t id) const {
    return data_.kinds[id] == TokenKind::kUserDefined &&
           data_.tokens[id] == fmt::format("[PAD{}]", id);
  }

  // Files without types: at least the bytes of a SentencePiece vocabulary can be told by their
  // text.
  void mark_bytes() {
    if (!is_spm()) return;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto text = fmt::format("<0x{:02X}>", byte);
      const auto found = std::find(data_.tokens.begin(), data_.tokens.end(), text);
      if (found == data_.tokens.end()) continue;
      data_.kinds[static_cast<std::size_t>(found - data_.tokens.begin())] = TokenKind::kByte;
    }
  }

  Result<> read_merges() {
    constexpr std::string_view kMerges = "tokenizer.ggml.merges";
    if (is_spm()) return {};
    if (!has(kMerges))
      return fail(
          Code::kBadFile,
          "{}: tokenizer.ggml.model is gpt2 but {} is missing; convert the model again",
          file_.path(),
          kMerges
      );
    const auto merges = TRY(file_.get_strings(kMerges));
    for (std::size_t i = 0; i < merges.size(); ++i)
      if (merges[i].find(' ', 1) == std::string_view::npos)
        return fail(
            Code::kBadFile,
            "{}: merge {} '{}' has no space in {}; a merge is two tokens with a space between",
            file_.path(),
            i,
            merges[i],
            kMerges
        );
    data_.merges.assign(merges.begin(), merges.end());
    return {};
  }

  Result<TokenId> read_id(std::string_view key) {
    if (!has(key)) return TokenId{-1};
    // Some writers store "none" as -1 or as its unsigned twin; both are outside, like any other.
    const auto value = file_.get_unsigned(key);
    if (value && *value < data_.tokens.size()) return static_cast<TokenId>(*value);
    if (!value && file_.find_key(key)->type != model::GgufType::kInt32 &&
        file_.find_key(key)->type != model::GgufType::kInt64)
      return tl::unexpected<Error>(value.error());
    const std::string shown = value ? std::to_string(*value) : std::string("negative");
    warnings_.push_back(fmt::format(
        "{}: {} {} is outside the vocabulary of {}; ignored",
        file_.path(),
        key,
        shown,
        data_.tokens.size()
    ));
    return TokenId{-1};
  }

  Result<> read_ids() {
    data_.bos = TRY(read_id("tokenizer.ggml.bos_token_id"));
    data_.eos = TRY(read_id("tokenizer.ggml.eos_token_id"));
    data_.unknown = TRY(read_id("tokenizer.ggml.unknown_token_id"));
    data_.padding = TRY(read_id("tokenizer.ggml.padding_token_id"));
    for (std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      const TokenId id = TRY(read_id(key));
      if (id >= 0) data_.end_of_generation.push_back(id);
    }
    if (data_.eos >= 0) data_.end_of_generation.push_back(data_.eos);
    data_.infill.prefix = TRY(read_mark("fim_pre", "prefix"));
    data_.infill.suffix = TRY(read_mark("fim_suf", "suffix"));
    data_.infill.middle = TRY(read_mark("fim_mid", "middle"));
    return {};
  }

  // Older files have the older name.
  Result<TokenId> read_mark(std::string_view name, std::string_view older) {
    for (const std::string_view one : {name, older}) {
      const TokenId id = TRY(read_id(fmt::format("tokenizer.ggml.{}_token_id", one)));
      if (id >= 0) return id;
    }
    return TokenId{-1};
  }

  Result<bool> read_flag(std::string_view key, bool otherwise) {
    if (!has(key)) return otherwise;
    return file_.get_bool(key);
  }

  Result<> read_flags() {
    bool family_adds_bos = true;  // SentencePiece models were trained with BOS
    if (!is_spm()) {
      auto pre = codec::find_pre_tokenizer(data_.pre);
      if (!pre) return fail(pre.error().code, "{}: {}", file_.path(), pre.error().message);
      family_adds_bos = pre->add_bos;
    }
    data_.add_bos = TRY(read_flag("tokenizer.ggml.add_bos_token", family_adds_bos));
    data_.add_eos = TRY(read_flag("tokenizer.ggml.add_eos_token", false));
    data_.add_space_prefix = TRY(read_flag("tokenizer.ggml.add_space_prefix", is_spm()));
    data_.add_bos = data_.add_bos && data_.bos >= 0;
    data_.add_eos = data_.add_eos && data_.eos >= 0;
    return {};
  }

  // Sorting numbers is quicker than a map of texts, and most vocabularies end here.
  bool surely_distinct() const {
    std::vector<std::size_t> hashes(data_.tokens.size());
    std::ranges::transform(data_.tokens, hashes.begin(), std::hash<std::string_view>());
    std::ranges::sort(hashes);
    return std::ranges::adjacent_find(hashes) == hashes.end();
  }

  void warn_of_equal_tokens() {
    if (surely_distinct()) return;
    std::unordered_map<std::string_view, std::size_t> first;
    first.reserve(data_.tokens.size());
    std::size_t equal = 0;
    std::string example;
    for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
      const auto [found, fresh] = first.emplace(data_.tokens[id], id);
      if (fresh || data_.kinds[id] == TokenKind::kUnused) continue;
      if (equal++ == 0)
        example = fmt::format("tokens {} and {} are both '{}'", found->second, id, found->first);
    }
    if (equal == 0) return;
    const std::string more = equal > 1 ? fmt::format(" (and {} more)", equal - 1) : std::string();
    warnings_.push_back(fmt::format(
        "{}: {}{} in {}; text becomes the lower id", file_.path(), example, more, kTokens
    ));
  }

  const ModelFile& file_;
  std::vector<std::string>& warnings_;
  VocabData data_;
};

}  // namespace

Result<VocabData> load_vocab(const ModelFile& file, std::vector<std::string>* warnings) {
  std::vector<std::string> own;
  std::vector<std::string>& found = warnings != nullptr ? *warnings : own;
  auto data = VocabReader(file, found).read();
  for (const std::string& line : own) log_warn("{}", line);
  return data;
}

}  // namespace artery::cli
