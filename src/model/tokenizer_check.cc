#include "model/tokenizer_check.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "model/format/text.h"

namespace artery::model {
namespace {

using Tokens = std::span<const std::string_view>;

Result<> check_lengths(const ModelFile& file, std::size_t tokens, std::int64_t vocab) {
  if (static_cast<std::int64_t>(tokens) != vocab) {
    return fail(
        Code::kBadFile,
        "{}: tokenizer.ggml.tokens has {} tokens but token_embd.weight has {} rows",
        file.path(),
        tokens,
        vocab
    );
  }
  if (file.find_key("tokenizer.ggml.scores") != nullptr) {
    const std::size_t scores = TRY(file.get_floats("tokenizer.ggml.scores")).size();
    if (scores != tokens) {
      return fail(
          Code::kBadFile,
          "{}: tokenizer.ggml.scores: {} scores for {} tokens",
          file.path(),
          scores,
          tokens
      );
    }
  }
  if (file.find_key("tokenizer.ggml.token_type") != nullptr) {
    const std::size_t types = TRY(file.get_integers("tokenizer.ggml.token_type")).size();
    if (types != tokens) {
      return fail(
          Code::kBadFile,
          "{}: tokenizer.ggml.token_type: {} token types for {} tokens",
          file.path(),
          types,
          tokens
      );
    }
  }
  return {};
}

Result<> check_merges(const ModelFile& file, std::vector<std::string>& warnings) {
  if (file.find_key("tokenizer.ggml.merges") == nullptr) {
    return fail(
        Code::kBadFile,
        "{}: tokenizer.ggml.model is gpt2 but tokenizer.ggml.merges is missing",
        file.path()
    );
  }
  const Tokens merges = TRY(file.get_strings("tokenizer.ggml.merges"));
  // A part may itself begin with a space, so the separator is looked for after the first byte.
  const auto bad = std::ranges::find_if(merges, [](std::string_view merge) {
    return merge.find(' ', 1) == std::string_view::npos;
  });
  if (bad != merges.end()) {
    warnings.push_back(fmt::format(
        "{}: tokenizer.ggml.merges: merge {} '{}' has no space; it is ignored",
        file.path(),
        bad - merges.begin(),
        printable(*bad)
    ));
  }
  return {};
}

// Sorting numbers is ten times quicker than sorting texts, and most vocabularies end here.
bool surely_distinct(Tokens tokens) {
  std::vector<std::size_t> hashes(tokens.size());
  std::ranges::transform(tokens, hashes.begin(), std::hash<std::string_view>());
  std::ranges::sort(hashes);
  return std::ranges::adjacent_find(hashes) == hashes.end();
}

void warn_duplicates(const ModelFile& file, Tokens tokens, std::vector<std::string>& warnings) {
  if (surely_distinct(tokens)) return;
  std::vector<std::uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  auto text = [&](std::uint32_t i) { return tokens[i]; };
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return std::pair(tokens[i], i); });
  std::size_t twins = 0;
  std::size_t first = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (text(order[i - 1]) != text(order[i])) continue;
    if (twins == 0) first = i;
    ++twins;
  }
  if (twins == 0) return;
  warnings.push_back(fmt::format(
      "{}: tokenizer.ggml.tokens: tokens {} and {} are both '{}'{}",
      file.path(),
      order[first - 1],
      order[first],
      printable(text(order[first])),
      twins == 1 ? "" : fmt::format(" ({} duplicates in all)", twins)
  ));
}

void warn_special_ids(
    const ModelFile& file, std::int64_t vocab, std::vector<std::string>& warnings
) {
  for (const GgufKey& entry : file.metadata()) {
    if (!entry.key.starts_with("tokenizer.ggml.") || !entry.key.ends_with("_token_id")) continue;
    const auto id = file.get_unsigned(entry.key);
    if (id && *id < static_cast<std::uint64_t>(vocab)) continue;
    warnings.push_back(
        id ? fmt::format(
                 "{}: {} {} is outside the vocabulary of {}; it is ignored",
                 file.path(),
                 printable(entry.key),
                 *id,
                 vocab
             )
           : id.error().message
    );
  }
}

}  // namespace

Result<> check_tokenizer(
    const ModelFile& file, std::int64_t vocab, std::vector<std::string>& warnings
) {
  const std::string_view model = TRY(file.get_string("tokenizer.ggml.model"));
  if (model != "gpt2" && model != "llama") {
    return fail(
        Code::kUnsupported,
        "{}: unknown tokenizer.ggml.model '{}' (supported: gpt2, llama)",
        file.path(),
        printable(model)
    );
  }
  const Tokens tokens = TRY(file.get_strings("tokenizer.ggml.tokens"));
  TRY(check_lengths(file, tokens.size(), vocab));
  if (model == "gpt2") TRY(check_merges(file, warnings));
  if (model == "llama" && file.find_key("tokenizer.ggml.scores") == nullptr) {
    return fail(
        Code::kBadFile,
        "{}: tokenizer.ggml.model is llama but tokenizer.ggml.scores is missing",
        file.path()
    );
  }
  warn_duplicates(file, tokens, warnings);
  warn_special_ids(file, vocab, warnings);
  return {};
}

}  // namespace artery::model
