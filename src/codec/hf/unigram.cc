// Unigram (models/unigram/model.rs of the Hugging Face library, encode_optimized).

#include <algorithm>
#include <limits>
#include <utility>

#include "codec/byte_trie.h"
#include "codec/hf/piece_model.h"
#include "codec/hf/piece_tokenizer.h"
#include "codec/unicode.h"

namespace artery::codec {
namespace {

constexpr double kUnknownPenalty = 10;

class Unigram final : public PieceTokenizer {
 public:
  explicit Unigram(PieceParts parts) : PieceTokenizer(parts), scores_(std::move(parts.scores)) {
    double lowest = std::numeric_limits<double>::infinity();
    for (std::size_t id = 0; id < data_.tokens.size(); ++id) {
      if (!parts.in_model[id] || data_.tokens[id].empty()) continue;
      trie_.add(data_.tokens[id], static_cast<TokenId>(id));
      lowest = std::min(lowest, scores_[id]);
    }
    unknown_score_ = lowest - kUnknownPenalty;
  }

 protected:
  void encode_text(std::string_view text, Place place, std::vector<TokenId>& ids) const override {
    std::vector<Node> nodes;
    pipeline().run(
        text,
        place.at_start,
        [&](std::string_view word) { encode_word(word, nodes, ids); },
        [&](TokenId id) { ids.push_back(id); }
    );
  }

 private:
  // The best way to a place in the word: its last token and where that begins.
  struct Node {
    double score = 0;
    std::size_t begin = kNowhere;
    TokenId id = -1;
  };
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  static void offer(Node& node, double score, std::size_t begin, TokenId id) {
    if (node.begin == kNowhere || score > node.score) node = {score, begin, id};
  }

  void encode_word(std::string_view word, std::vector<Node>& nodes, std::vector<TokenId>& ids)
      const {
    nodes.assign(word.size() + 1, Node{});
    for (std::size_t begin = 0; begin < word.size();) {
      const Utf8Char c = decode_utf8(word, begin);
      const std::size_t bytes = c.state == Utf8State::kValid ? c.bytes : 1;
      const double here = nodes[begin].score;
      bool has_single = false;
      std::uint32_t node = trie_.first(static_cast<std::uint8_t>(word[begin]));
      for (std::size_t end = begin + 1; node != ByteTrie::kNone; ++end) {
        if (const TokenId id = trie_.id(node); id >= 0) {
          offer(nodes[end], here + scores_[static_cast<std::size_t>(id)], begin, id);
          has_single = has_single || end == begin + bytes;
        }
        if (end == word.size()) break;
        node = trie_.next(node, static_cast<std::uint8_t>(word[end]));
      }
      if (!has_single) offer(nodes[begin + bytes], here + unknown_score_, begin, -1);
      begin += bytes;
    }
    append_best(word, nodes, ids);
  }

  struct Segment {
    std::size_t begin, end;
    TokenId id;
  };

  // The segments of the best way, and of runs of unknown characters the bytes or one unknown token.
  void append_best(std::string_view word, const std::vector<Node>& nodes, std::vector<TokenId>& ids)
      const {
    std::vector<Segment> segments;
    for (std::size_t at = word.size(); at > 0;) {
      const Node& node = nodes[at];
      const bool unknown = node.id < 0 || node.id == unknown_;
      if (unknown && !segments.empty() && segments.back().id < 0) {
        segments.back().begin = node.begin;
      } else {
        segments.push_back({node.begin, at, unknown ? -1 : node.id});
      }
      at = node.begin;
    }
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
      if (segment->id >= 0) {
        ids.push_back(segment->id);
        continue;
      }
      const std::string_view text = word.substr(segment->begin, segment->end - segment->begin);
      if (const TokenId id = pieces_.find(text); id >= 0) {
        ids.push_back(id);
      } else if (!append_bytes(text, ids)) {
        append_unknown(false, ids);
      }
    }
  }

  ByteTrie trie_;
  std::vector<double> scores_;  // [tokens]
  double unknown_score_ = 0;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_unigram(PieceParts parts) {
  for (std::size_t id = 0; id < parts.data.tokens.size(); ++id)
    if (parts.in_model[id] && parts.data.tokens[id].size() > kUnigramBytesMax)
      return fail(
          Code::kUnsupported,
          "token {} has {} bytes; {} are the most in a Unigram model",
          id,
          parts.data.tokens[id].size(),
          kUnigramBytesMax
      );
  return std::make_unique<Unigram>(std::move(parts));
}

}  // namespace artery::codec
