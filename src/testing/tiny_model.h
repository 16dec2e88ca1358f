#pragma once
// Small random models that behave like real files: the same seed and options give the same bytes.
// They say nothing sensible, but every architecture, shape and weight type can be had in a few
// kilobytes. Pure, any thread.

#include <cstdint>
#include <string>

#include "tensor/dtype.h"
#include "testing/gguf_writer.h"

namespace artery::testing {

enum class TinyTokenizer {
  kBytes,          // "gpt2" model: the 256 bytes in GPT-2's visible alphabet, no merges
  kSentencePiece,  // "llama" model: <0x00> .. <0xFF> and the space mark
};

struct TinyModelOptions {
  std::uint64_t seed = 1;
  std::string architecture = "llama";  // any of model/arch; its tensors and keys come with it
  int layers = 2;
  int embedding = 64;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 0;  // 0: embedding / heads, and no key_length in the file
  int feed_forward = 96;
  int window = 0;               // positions a window layer sees; which layers, the family decides
  int experts = 0;              // 0: dense layers, feed_forward wide
  int experts_used = 2;         // of `experts`, each feed_forward wide
  int shared_feed_forward = 0;  // of the expert all rows take (qwen2moe)
  int context = 512;
  int vocab = 0;  // 0: what the tokenizer needs; more are filled up with unused tokens
  bool tied = false;
  // Of the matrices; embedding, heads * head_dim and feed_forward must be multiples of its block.
  tensor::DType weight_type = tensor::DType::kF32;
  TinyTokenizer tokenizer = TinyTokenizer::kBytes;
  bool chat_template = true;  // ChatML
};

// A writer, so that a test can spoil the file before it takes bytes().
GgufWriter tiny_model(const TinyModelOptions& options);

// Control tokens of a tiny model, by its tokenizer's order.
struct TinyTokens {
  int begin = 0;  // <|endoftext|> or <s>: bos
  int end = 0;    // <|im_end|>: eos
  int vocab = 0;  // tokens without the unused ones
};
TinyTokens tiny_tokens(TinyTokenizer tokenizer);

}  // namespace artery::testing
