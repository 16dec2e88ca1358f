#pragma once
// Small complete vocabularies of both kinds, for tests and the fuzz target of this room only. Every
// byte is a token, so that any text comes back. Pure functions, any thread.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "codec/bpe/byte_alphabet.h"
#include "codec/vocab.h"

namespace artery::codec {

inline TokenId add_token(VocabData& data, std::string text, TokenKind kind, float score = 0) {
  data.tokens.push_back(std::move(text));
  data.kinds.push_back(kind);
  if (data.model == TokenizerModel::kSentencePiece) data.scores.push_back(score);
  return static_cast<TokenId>(data.tokens.size() - 1);
}

// Tokens 0 to 255 are the bytes; then merges; then <|end|> 265, <|start|> 266, <|start|>x 267
// (control) and <tool> 268 (user-defined).
inline VocabData small_byte_level_vocab(std::string pre = "gpt-2") {
  VocabData data;
  data.model = TokenizerModel::kByteLevelBpe;
  data.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte)
    add_token(data, visible_byte(static_cast<std::uint8_t>(byte)), TokenKind::kNormal);
  const std::string space = visible_byte(' ');
  const std::pair<std::string, std::string> merges[] = {
      {"h", "e"},          // 256
      {"l", "l"},          // 257
      {"he", "ll"},        // 258
      {"hell", "o"},       // 259
      {space, "w"},        // 260
      {space + "w", "o"},  // 261
      {"a", "a"},          // 262
      {"aa", "aa"},        // 263
      {space, space},      // 264
  };
  for (const auto& [left, right] : merges) {
    data.merges.push_back(left + " " + right);
    add_token(data, left + right, TokenKind::kNormal);
  }
  data.eos = add_token(data, "<|end|>", TokenKind::kControl);
  data.bos = add_token(data, "<|start|>", TokenKind::kControl);
  add_token(data, "<|start|>x", TokenKind::kControl);
  add_token(data, "<tool>", TokenKind::kUserDefined);
  data.end_of_generation = {data.eos};
  return data;
}

// <unk> 0, <s> 1, </s> 2, the bytes 3 to 258, then pieces by score and [TABLE] (user-defined).
inline VocabData small_sentence_piece_vocab() {
  VocabData data;
  data.model = TokenizerModel::kSentencePiece;
  data.pre = "default";
  data.unknown = add_token(data, "<unk>", TokenKind::kUnknown);
  data.bos = add_token(data, "<s>", TokenKind::kControl);
  data.eos = add_token(data, "</s>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte)
    add_token(data, fmt::format("<0x{:02X}>", byte), TokenKind::kByte);
  const std::string space = "\xE2\x96\x81";
  const std::string pieces[] = {"he",          "ll",        "hell",
                                "hello",       space + "w", "or",
                                space + "wor", "ld",        space + "world",
                                space + space, space,       "h",
                                "e",           "l",         "o",
                                "w",           "r",         "d",
                                "a",           "\xC3\xA9"};
  float score = 0;
  for (const std::string& piece : pieces) add_token(data, piece, TokenKind::kNormal, score -= 1);
  add_token(data, "[TABLE]", TokenKind::kUserDefined);
  data.end_of_generation = {data.eos};
  data.add_bos = true;
  return data;
}

}  // namespace artery::codec
