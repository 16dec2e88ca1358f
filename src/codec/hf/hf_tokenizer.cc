#include "codec/hf/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "codec/end_tokens.h"
#include "codec/hf/piece_model.h"
#include "codec/hf/tokenizer_spec.h"
#include "codec/infill.h"

namespace artery::codec {
namespace {

bool is_byte_token(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') &&
         kDigits.find(text[3]) != std::string_view::npos &&
         kDigits.find(text[4]) != std::string_view::npos;
}

class Builder {
 public:
  Builder(TokenizerSpec spec, const HfTokenizerConfig& config, std::vector<std::string>& warnings)
      : spec_(std::move(spec)), config_(config), warnings_(warnings) {}

  Result<std::unique_ptr<Tokenizer>> make() {
    TRY(check_decoder());
    TRY(fit_to_vocab_size());
    set_kinds();
    name_tokens();
    add_tokens();
    if (spec_.byte_level) return make_byte_level();
    auto made = make_piece_parts();
    if (spec_.model == TokenizerSpec::Model::kUnigram) return make_unigram(std::move(made));
    return make_char_bpe(std::move(made));
  }

 private:
  Result<> check_decoder() {
    if (spec_.byte_level != spec_.decodes_bytes)
      return fail(
          Code::kUnsupported,
          "pre_tokenizer {} ByteLevel, but decoder {} it: texts would not come back",
          spec_.byte_level ? "has" : "lacks",
          spec_.decodes_bytes ? "has" : "lacks"
      );
    if (spec_.byte_level && spec_.model == TokenizerSpec::Model::kUnigram)
      return fail(Code::kUnsupported, "pre_tokenizer: ByteLevel with a Unigram model");
    return {};
  }

  // The model has a row of its embedding for each id; files have fewer tokens, or a few more that
  // only other variants of the model use.
  Result<> fit_to_vocab_size() {
    const std::size_t wanted = config_.vocab_size;
    if (wanted == 0) return {};
    for (std::size_t id = wanted; id < spec_.tokens.size(); ++id)
      if (spec_.in_model[id])
        return fail(
            Code::kBadFile,
            "model.vocab: token {} '{}' is outside the model's vocabulary of {}; the tokenizer "
            "belongs to another model",
            id,
            spec_.tokens[id],
            wanted
        );
    std::erase_if(spec_.added, [&](const SpecToken& token) {
      if (static_cast<std::size_t>(token.id) < wanted) return false;
      warnings_.push_back(fmt::format(
          "added_tokens: {} '{}' is outside the model's vocabulary of {}; ignored",
          token.id,
          token.text,
          wanted
      ));
      return true;
    });
    spec_.tokens.resize(wanted);
    spec_.in_model.resize(wanted);
    for (TokenId* id : {&spec_.bos, &spec_.eos})
      if (*id >= 0 && static_cast<std::size_t>(*id) >= wanted) *id = -1;
    return {};
  }

  TokenKind kind_of_model_token(std::size_t id) const {
    if (spec_.tokens[id].empty() && !spec_.in_model[id]) return TokenKind::kUnused;
    if (static_cast<TokenId>(id) == spec_.unknown) return TokenKind::kUnknown;
    if (spec_.byte_fallback && is_byte_token(spec_.tokens[id])) return TokenKind::kByte;
    return TokenKind::kNormal;
  }

  void set_kinds() {
    const std::size_t count = spec_.tokens.size();
    data_.kinds.resize(count);
    for (std::size_t id = 0; id < count; ++id) data_.kinds[id] = kind_of_model_token(id);
    for (const SpecToken& token : spec_.added) {
      TokenKind& kind = data_.kinds[static_cast<std::size_t>(token.id)];
      if (kind == TokenKind::kUnknown || kind == TokenKind::kByte) continue;
      kind = kind_of_added_token(token.text, token.special);
    }
    for (std::size_t id = 0; id < count; ++id)
      if (data_.kinds[id] == TokenKind::kUnused) spec_.tokens[id] = fmt::format("[PAD{}]", id);
  }

  // The token of a text that another file names; what is not flagged there as special is now.
  TokenId named(std::string_view text, std::string_view what) {
    if (text.empty()) return -1;
    const auto found = std::ranges::find(spec_.tokens, text);
    if (found == spec_.tokens.end()) {
      warnings_.push_back(
          fmt::format("{} '{}' is not a token of the tokenizer; ignored", what, text)
      );
      return -1;
    }
    return static_cast<TokenId>(found - spec_.tokens.begin());
  }

  void name_tokens() {
    data_.model = spec_.byte_level ? TokenizerModel::kByteLevelBpe : TokenizerModel::kSentencePiece;
    data_.add_space_prefix = spec_.strips_space;
    data_.bos = named(config_.bos, "bos_token");
    data_.eos = named(config_.eos, "eos_token");
    data_.padding = named(config_.pad, "pad_token");
    data_.unknown = spec_.unknown >= 0 ? spec_.unknown : named(config_.unk, "unk_token");
    data_.add_bos = config_.add_bos.value_or(spec_.bos >= 0);
    data_.add_eos = config_.add_eos.value_or(spec_.eos >= 0);
    // What the post-processor puts there is what the model was trained with.
    if (spec_.bos >= 0 && data_.add_bos) data_.bos = spec_.bos;
    if (spec_.eos >= 0 && data_.add_eos) data_.eos = spec_.eos;
    data_.add_bos = data_.add_bos && data_.bos >= 0;
    data_.add_eos = data_.add_eos && data_.eos >= 0;
    for (TokenId id : config_.end_of_generation) add_end(id);
    if (data_.eos >= 0) add_end(data_.eos);
    data_.tokens = std::move(spec_.tokens);
    collect_end_tokens(data_);
    find_infill_tokens(data_);
  }

  void add_end(TokenId id) {
    if (id >= 0 && static_cast<std::size_t>(id) < data_.kinds.size()) {
      data_.end_of_generation.push_back(id);
    } else {
      warnings_.push_back(fmt::format("eos_token_id {} is outside the vocabulary; ignored", id));
    }
  }

  // Tokens flagged as normalized are searched behind the normalizers. Control tokens are always
  // searched in the text as it came, where it is known which parts of it are data.
  void add_tokens() {
    const bool normalizes = !spec_.normalizers.empty();
    const TextPipeline normalizers(spec_.normalizers, {}, {});
    std::string buffer;
    for (const SpecToken& token : spec_.added) {
      const auto id = static_cast<std::size_t>(token.id);
      const bool control =
          data_.kinds[id] == TokenKind::kControl || data_.kinds[id] == TokenKind::kUnknown;
      if (!token.normalized || !normalizes) {
        added_.add(token.text, token.id, control, token.rules, token.normalized);
      } else if (control) {
        added_.add(token.text, token.id, true, token.rules, true);
      } else {
        const std::string_view text = normalizers.normalize(token.text, buffer);
        normalized_.add(text, token.id, false, token.rules);
        has_normalized_ = true;
      }
    }
  }

  std::unique_ptr<const TextPipeline> make_pipeline() {
    return std::make_unique<TextPipeline>(
        std::move(spec_.normalizers), std::move(normalized_), std::move(spec_.cuts)
    );
  }

  // Sets `pre` when the steps are one of the forms that have a scanner of their own.
  bool is_known_form(PreTokenizer& pre) const {
    if (has_normalized_ || spec_.normalizers.size() > 1) return false;
    if (spec_.normalizers.size() == 1) {
      const NormalizeStep& step = spec_.normalizers.front();
      if (step.kind != NormalizeStep::Kind::kForm || step.form != NormalForm::kNfc) return false;
      pre.nfc = true;
    }
    const std::vector<CutStep>& cuts = spec_.cuts;
    const auto is_rule = [&](std::size_t at) { return cuts[at].kind == CutStep::Kind::kRule; };
    if (cuts.size() == 1 && is_rule(0)) {
      pre.rule = cuts[0].rule;
      return true;
    }
    const bool digits_then_gpt2 = cuts.size() == 2 && cuts[0].kind == CutStep::Kind::kNumbers &&
                                  cuts[0].behavior == SplitBehavior::kIsolated && is_rule(1) &&
                                  cuts[1].rule == SplitRule::kGpt2;
    if (digits_then_gpt2) pre.rule = SplitRule::kSmolLm;
    return digits_then_gpt2;
  }

  Result<std::unique_ptr<Tokenizer>> make_byte_level() {
    ByteLevelParts parts;
    parts.pre.whole_words = spec_.ignore_merges;
    if (!is_known_form(parts.pre)) parts.pipeline = make_pipeline();
    parts.data = std::move(data_);
    parts.added = std::move(added_);
    parts.merges = std::move(spec_.merges);
    parts.missing_byte = spec_.unknown;
    parts.fuse_missing = spec_.fuse_unknown;
    return make_byte_level_bpe(std::move(parts));
  }

  PieceParts make_piece_parts() {
    PieceParts parts;
    parts.pipeline = make_pipeline();
    spec_.scores.resize(data_.tokens.size());
    parts.data = std::move(data_);
    parts.in_model = std::move(spec_.in_model);
    parts.added = std::move(added_);
    parts.unknown = spec_.unknown;
    parts.spaces = spec_.decodes_spaces;
    parts.byte_fallback = spec_.byte_fallback;
    parts.fuse_unknown = spec_.fuse_unknown;
    parts.ignore_merges = spec_.ignore_merges;
    parts.merges = std::move(spec_.merges);
    parts.scores = std::move(spec_.scores);
    return parts;
  }

  TokenizerSpec spec_;
  const HfTokenizerConfig& config_;
  std::vector<std::string>& warnings_;
  VocabData data_;
  AddedTokens added_, normalized_;
  bool has_normalized_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_hf_tokenizer(
    std::string_view tokenizer_json,
    const HfTokenizerConfig& config,
    std::vector<std::string>* warnings
) {
  TokenizerSpec spec = TRY(read_tokenizer_json(tokenizer_json));
  std::vector<std::string> own;
  auto made = Builder(std::move(spec), config, warnings != nullptr ? *warnings : own).make();
  for (const std::string& line : own) log_warn("{}", line);
  return made;
}

}  // namespace artery::codec
