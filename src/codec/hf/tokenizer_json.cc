#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/hf/json_node.h"
#include "codec/hf/tokenizer_spec.h"
#include "codec/token_index.h"

namespace artery::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kTokenBytesMax = std::size_t{1} << 20;

class SpecReader {
 public:
  explicit SpecReader(const JsonNode& root) : root_(root) {}

  Result<TokenizerSpec> read() {
    TRY(root_.object());
    TRY(read_model());
    TRY(read_added());
    TRY(read_normalizer(root_["normalizer"], spec_));
    TRY(read_pre_tokenizer(root_["pre_tokenizer"], spec_));
    TRY(read_post_processor(root_["post_processor"], spec_));
    TRY(read_decoder(root_["decoder"], spec_));
    return std::move(spec_);
  }

 private:
  Result<> read_model() {
    const JsonNode model = root_["model"];
    TRY(model.object());
    // Files of before 2021 have no type; then the fields tell.
    const JsonNode type_node = model["type"];
    const std::string type(type_node.missing() ? "BPE" : TRY(type_node.text()));
    if (type == "BPE") return read_bpe(model);
    if (type == "Unigram") return read_unigram(model);
    return fail(
        Code::kUnsupported,
        "{}: model '{}' is not supported by this build; it knows BPE and Unigram",
        type_node.place(),
        type
    );
  }

  Result<> refuse_text(const JsonNode& node) {
    if (node.missing() || TRY(node.text()).empty()) return {};
    return fail(Code::kUnsupported, "{}: is not supported by this build", node.place());
  }

  Result<> read_bpe(const JsonNode& model) {
    TRY(refuse_text(model["continuing_subword_prefix"]));
    TRY(refuse_text(model["end_of_word_suffix"]));
    const JsonNode dropout = model["dropout"];
    if (!dropout.missing() && TRY(dropout.number()) != 0)
      return fail(
          Code::kUnsupported, "{}: merges left out at random are for training", dropout.place()
      );
    spec_.byte_fallback = TRY(model["byte_fallback"].boolean(false));
    spec_.fuse_unknown = TRY(model["fuse_unk"].boolean(false));
    spec_.ignore_merges = TRY(model["ignore_merges"].boolean(false));
    TRY(read_vocab(model["vocab"]));
    TRY(read_merges(model["merges"]));
    const JsonNode unknown = model["unk_token"];
    if (unknown.missing() || TRY(unknown.text()).empty()) return {};
    spec_.unknown = find_token(TRY(unknown.text()));
    if (spec_.unknown < 0)
      return fail(
          Code::kBadFile, "{}: '{}' is not in the vocabulary", unknown.place(), *unknown.text()
      );
    return {};
  }

  TokenId find_token(std::string_view text) const { return index_->find(text); }

  Result<> set_token(TokenId id, std::string_view text, const std::string& place) {
    if (text.size() > kTokenBytesMax)
      return fail(Code::kBadFile, "{}: a token of {} bytes", place, text.size());
    const auto at = static_cast<std::size_t>(id);
    if (at >= spec_.tokens.size()) {
      spec_.tokens.resize(at + 1);
      spec_.in_model.resize(at + 1);
    }
    if (spec_.in_model[at])
      return fail(
          Code::kBadFile, "{}: id {} is both '{}' and '{}'", place, id, spec_.tokens[at], text
      );
    spec_.tokens[at] = text;
    spec_.in_model[at] = true;
    return {};
  }

  void index_tokens() {
    std::size_t bytes = 0;
    for (const std::string& token : spec_.tokens) bytes += token.size();
    index_.emplace(spec_.tokens.size(), bytes);
    for (std::size_t id = 0; id < spec_.tokens.size(); ++id)
      if (spec_.in_model[id]) index_->add(spec_.tokens[id], static_cast<TokenId>(id));
  }

  Result<> read_vocab(const JsonNode& vocab) {
    const json::object& tokens = *TRY(vocab.object());
    if (tokens.empty()) return fail(Code::kBadFile, "{}: is empty", vocab.place());
    // Ids may leave gaps, which cost memory: at most as many as there are tokens, and a few.
    constexpr std::size_t kGapsMin = 65536;
    const std::size_t limit = std::min(kTokensMax, tokens.size() * 2 + kGapsMin);
    spec_.tokens.reserve(tokens.size() + 1024);
    for (const auto& [text, id] : tokens) {
      const JsonNode node(&id, vocab.place());
      const auto found = node.index(limit);
      if (!found)
        return fail(
            Code::kBadFile, "{} (token '{}')", found.error().message, std::string_view(text)
        );
      TRY(set_token(static_cast<TokenId>(*found), text, vocab.place()));
    }
    index_tokens();
    return {};
  }

  // "a b" or ["a", "b"].
  Result<std::pair<std::string_view, std::string_view>> read_pair(
      const json::value& merge, std::size_t rank
  ) {
    if (const json::array* pair = merge.if_array();
        pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string())
      return std::pair<std::string_view, std::string_view>(
          (*pair)[0].get_string(), (*pair)[1].get_string()
      );
    if (merge.is_string()) {
      const std::string_view text = merge.get_string();
      const std::size_t space = text.find(' ');
      const bool one = space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
                       text.find(' ', space + 1) == std::string_view::npos;
      if (one) return std::pair(text.substr(0, space), text.substr(space + 1));
    }
    return fail(
        Code::kBadFile,
        "model.merges[{}]: expected \"a b\" or [\"a\", \"b\"], found {}",
        rank,
        json::serialize(merge).substr(0, 100)
    );
  }

  Result<> read_merges(const JsonNode& node) {
    const json::array& merges = *TRY(node.array());
    spec_.merges.reserve(merges.size());
    std::string both;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = TRY(read_pair(merges[rank], rank));
      both.assign(left).append(right);
      const IdMerge merge{find_token(left), find_token(right), find_token(both)};
      if (merge.left < 0 || merge.right < 0 || merge.joined < 0)
        return fail(
            Code::kBadFile,
            "model.merges[{}]: '{}' is not in the vocabulary",
            rank,
            merge.left < 0    ? left
            : merge.right < 0 ? right
                              : std::string_view(both)
        );
      spec_.merges.push_back(merge);
    }
    return {};
  }

  Result<> read_unigram(const JsonNode& model) {
    spec_.model = TokenizerSpec::Model::kUnigram;
    spec_.byte_fallback = TRY(model["byte_fallback"].boolean(false));
    spec_.fuse_unknown = true;
    const JsonNode vocab = model["vocab"];
    const json::array& tokens = *TRY(vocab.array());
    if (tokens.empty()) return fail(Code::kBadFile, "{}: is empty", vocab.place());
    if (tokens.size() > kTokensMax)
      return fail(Code::kBadFile, "{}: {} tokens", vocab.place(), tokens.size());
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      const json::array* pair = tokens[id].if_array();
      if (pair == nullptr || pair->size() != 2)
        return fail(Code::kBadFile, "{}[{}]: expected [text, score]", vocab.place(), id);
      const JsonNode node = vocab.at(id);
      const std::string_view text = TRY(node.at(0).text());
      TRY(set_token(static_cast<TokenId>(id), text, node.place()));
      spec_.scores.push_back(TRY(node.at(1).number()));
      if (!std::isfinite(spec_.scores.back()))
        return fail(Code::kBadFile, "{}: the score is not finite", node.place());
    }
    index_tokens();
    if (!model["unk_id"].missing())
      spec_.unknown = static_cast<TokenId>(TRY(model["unk_id"].index(tokens.size())));
    return {};
  }

  Result<> read_added() {
    const JsonNode added = root_["added_tokens"];
    if (added.missing()) return {};
    const std::size_t count = TRY(added.array())->size();
    if (count > kTokensMax) return fail(Code::kBadFile, "{}: {} tokens", added.place(), count);
    const std::size_t limit = std::min(kTokensMax, spec_.tokens.size() + 2 * count + 65536);
    for (std::size_t i = 0; i < count; ++i) TRY(read_added_token(added.at(i), limit));
    return {};
  }

  Result<> read_added_token(const JsonNode& node, std::size_t limit) {
    TRY(node.object());
    SpecToken token;
    token.id = static_cast<TokenId>(TRY(node["id"].index(limit)));
    token.text = TRY(node["content"].text());
    token.special = TRY(node["special"].boolean(false));
    token.normalized = TRY(node["normalized"].boolean(!token.special));
    token.rules.lstrip = TRY(node["lstrip"].boolean(false));
    token.rules.rstrip = TRY(node["rstrip"].boolean(false));
    token.rules.single_word = TRY(node["single_word"].boolean(false));
    if (token.text.size() > kTokenBytesMax)
      return fail(Code::kBadFile, "{}: {} bytes", node["content"].place(), token.text.size());
    const auto at = static_cast<std::size_t>(token.id);
    const TokenId in_model = find_token(token.text);
    const bool taken =
        at < spec_.tokens.size() && !spec_.tokens[at].empty() && spec_.tokens[at] != token.text;
    if (taken || (in_model >= 0 && in_model != token.id))
      return fail(
          Code::kBadFile,
          "{}: '{}' has id {}, but in the vocabulary {}",
          node.place(),
          token.text,
          token.id,
          taken ? fmt::format("that is '{}'", spec_.tokens[at]) : fmt::format("it is {}", in_model)
      );
    if (at >= spec_.tokens.size()) {
      spec_.tokens.resize(at + 1);
      spec_.in_model.resize(at + 1);
    }
    spec_.tokens[at] = token.text;
    spec_.added.push_back(std::move(token));
    return {};
  }

  JsonNode root_;
  TokenizerSpec spec_;
  std::optional<TokenIndex> index_;  // of the model's tokens
};

}  // namespace

Result<json::value> parse_json(std::string_view text, json::storage_ptr memory) {
  if (text.size() > kTokenizerJsonBytesMax)
    return fail(
        Code::kBadFile, "{} bytes of JSON; {} are the most", text.size(), kTokenizerJsonBytesMax
    );
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = 32;
  json::stream_parser parser(std::move(memory), options);
  const std::size_t read = parser.write_some(text.data(), text.size(), error);
  if (!error) parser.finish(error);
  if (!error && read < text.size() &&
      text.find_first_not_of(" \t\r\n", read) != std::string_view::npos)
    error = json::error::extra_data;
  if (error)
    return fail(Code::kBadFile, "byte {}: this is not valid JSON: {}", read, error.message());
  return parser.release();
}

Result<TokenizerSpec> read_tokenizer_json(std::string_view text) {
  // The document is freed at once, with this.
  json::monotonic_resource memory(std::max<std::size_t>(text.size(), 1024));
  const json::value document = TRY(parse_json(text, &memory));
  return SpecReader(JsonNode(&document, "")).read();
}

}  // namespace artery::codec
