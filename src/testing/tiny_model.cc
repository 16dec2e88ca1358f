#include "testing/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace artery::testing {
namespace {

constexpr std::int32_t kNormal = 1;  // tokenizer.ggml.token_type, as llama.cpp numbers them
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUnused = 5;
constexpr std::int32_t kByte = 6;

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// SplitMix64 (Steele et al. 2014): the same numbers on every machine.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  // Uniform in [-1, 1).
  float next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return static_cast<float>(static_cast<std::int32_t>(z >> 40) - (1 << 23)) / (1 << 23);
  }
  std::vector<float> values(std::int64_t count, float middle, float spread) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& value : out) value = middle + spread * next();
    return out;
  }

 private:
  std::uint64_t state_;
};

std::string utf8(unsigned code) {  // below U+0800
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// GPT-2's byte alphabet: printable Latin-1 stands for itself, the rest follows from U+0100.
std::vector<std::string> visible_bytes() {
  std::vector<std::string> out;
  unsigned next = 256;
  for (unsigned b = 0; b < 256; ++b) {
    const bool visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    out.push_back(utf8(visible ? b : next++));
  }
  return out;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  void add(std::string token, std::int32_t type, float score = 0) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(score);
  }
};

Vocabulary vocabulary(TinyTokenizer tokenizer) {
  Vocabulary out;
  if (tokenizer == TinyTokenizer::kBytes) {
    for (std::string& token : visible_bytes()) out.add(std::move(token), kNormal);
    out.add("<|endoftext|>", kControl);
  } else {
    out.add("<unk>", kUnknown);
    out.add("<s>", kControl);
    out.add("</s>", kControl);
    for (int b = 0; b < 256; ++b) out.add(fmt::format("<0x{:02X}>", b), kByte);
    out.add("\xE2\x96\x81", kNormal, -1);
  }
  out.add("<|im_start|>", kControl);
  out.add("<|im_end|>", kControl);
  return out;
}

void add_tokenizer(GgufWriter& out, const TinyModelOptions& options) {
  Vocabulary words = vocabulary(options.tokenizer);
  const auto wanted = static_cast<std::size_t>(std::max(options.vocab, 0));
  for (int i = 0; words.tokens.size() < wanted; ++i)
    words.add(fmt::format("[unused {}]", i), kUnused);
  const TinyTokens ids = tiny_tokens(options.tokenizer);
  const bool bytes = options.tokenizer == TinyTokenizer::kBytes;
  out.set_string("tokenizer.ggml.model", bytes ? "gpt2" : "llama");
  out.set_string("tokenizer.ggml.pre", bytes ? "gpt-2" : "default");
  out.set_strings("tokenizer.ggml.tokens", words.tokens);
  out.set_integers("tokenizer.ggml.token_type", words.types);
  if (bytes) {
    out.set_strings("tokenizer.ggml.merges", {});
  } else {
    out.set_floats("tokenizer.ggml.scores", words.scores);
    out.set_unsigned("tokenizer.ggml.unknown_token_id", 0);
  }
  out.set_unsigned("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(ids.begin));
  out.set_unsigned("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(ids.end));
  out.set_bool("tokenizer.ggml.add_bos_token", !bytes);
  if (options.chat_template) out.set_string("tokenizer.chat_template", kChatMl);
}

void add_hyper_parameters(GgufWriter& out, const TinyModelOptions& options) {
  auto set = [&](std::string_view key, int value) {
    out.set_unsigned(
        fmt::format("{}.{}", options.architecture, key), static_cast<std::uint32_t>(value)
    );
  };
  set("block_count", options.layers);
  set("context_length", options.context);
  set("embedding_length", options.embedding);
  set("feed_forward_length", options.feed_forward);
  set("attention.head_count", options.heads);
  set("attention.head_count_kv", options.kv_heads);
  if (options.head_dim > 0) {
    set("attention.key_length", options.head_dim);
    set("attention.value_length", options.head_dim);
  }
  if (options.window > 0) set("attention.sliding_window", options.window);
  if (options.experts > 0) {
    set("expert_count", options.experts);
    set("expert_used_count", options.experts_used);
    set("expert_feed_forward_length", options.feed_forward);
  }
  if (options.shared_feed_forward > 0)
    set("expert_shared_feed_forward_length", options.shared_feed_forward);
  out.set_float(options.architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  out.set_float(options.architecture + ".rope.freq_base", 10000.0f);
}

class Tensors {
 public:
  Tensors(GgufWriter& out, const TinyModelOptions& options)
      : out_(out), options_(options), numbers_(options.seed) {}

  // Uniform with the variance that keeps a row's size through the product, times `gain`.
  void matrix(const std::string& name, std::int64_t cols, std::int64_t rows, float gain) {
    const float spread = gain * std::sqrt(3.0f / static_cast<float>(cols));
    const auto values = numbers_.values(cols * rows, 0, spread);
    out_.set_values(name, options_.weight_type, {cols, rows}, values);
  }
  void vector(const std::string& name, std::int64_t size, float middle, float spread = 0.1f) {
    const auto values = numbers_.values(size, middle, spread);
    out_.set_values(name, tensor::DType::kF32, {size}, values);
  }
  void router(const std::string& name, std::int64_t cols, std::int64_t rows) {
    const float spread = 2 * std::sqrt(3.0f / static_cast<float>(cols));
    const auto values = numbers_.values(cols * rows, 0, spread);
    out_.set_values(name, tensor::DType::kF32, {cols, rows}, values);
  }
  void experts(
      const std::string& name, std::int64_t cols, std::int64_t rows, std::int64_t count, float gain
  ) {
    const float spread = gain * std::sqrt(3.0f / static_cast<float>(cols));
    const auto values = numbers_.values(cols * rows * count, 0, spread);
    out_.set_values(name, options_.weight_type, {cols, rows, count}, values);
  }
  void expert_biases(const std::string& name, std::int64_t size, std::int64_t count) {
    const auto values = numbers_.values(size * count, 0, 0.1f);
    out_.set_values(name, tensor::DType::kF32, {size, count}, values);
  }

 private:
  GgufWriter& out_;
  const TinyModelOptions& options_;
  Numbers numbers_;
};

bool is_any(const TinyModelOptions& options, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, options.architecture) != names.end();
}

void add_attention(Tensors& tensors, const TinyModelOptions& options, const std::string& block) {
  const std::int64_t e = options.embedding;
  const int head_dim = options.head_dim > 0 ? options.head_dim : options.embedding / options.heads;
  const std::int64_t q = options.heads * head_dim;
  const std::int64_t kv = options.kv_heads * head_dim;
  tensors.vector(block + "attn_norm.weight", e, 1);
  if (options.architecture == "phi3") {
    tensors.matrix(block + "attn_qkv.weight", e, q + 2 * kv, 2);
  } else {
    tensors.matrix(block + "attn_q.weight", e, q, 2);
    tensors.matrix(block + "attn_k.weight", e, kv, 2);
    tensors.matrix(block + "attn_v.weight", e, kv, 1);
  }
  if (is_any(options, {"qwen2", "qwen2moe", "gpt-oss"})) {
    tensors.vector(block + "attn_q.bias", q, 0);
    tensors.vector(block + "attn_k.bias", kv, 0);
    tensors.vector(block + "attn_v.bias", kv, 0);
  }
  if (is_any(options, {"qwen3", "qwen3moe", "gemma3"})) {
    tensors.vector(block + "attn_q_norm.weight", head_dim, 1);
    tensors.vector(block + "attn_k_norm.weight", head_dim, 1);
  }
  tensors.matrix(block + "attn_output.weight", q, e, 1);
  if (options.architecture == "gpt-oss") {
    tensors.vector(block + "attn_output.bias", e, 0);
    tensors.vector(block + "attn_sinks.weight", options.heads, 0, 2);
  }
  if (options.architecture == "gemma3") {
    tensors.vector(block + "post_attention_norm.weight", e, 1);
    tensors.vector(block + "post_ffw_norm.weight", e, 1);
  }
}

void add_experts(Tensors& tensors, const TinyModelOptions& options, const std::string& block) {
  const std::int64_t e = options.embedding;
  const std::int64_t f = options.feed_forward;
  const std::int64_t count = options.experts;
  tensors.router(block + "ffn_gate_inp.weight", e, count);
  tensors.experts(block + "ffn_gate_exps.weight", e, f, count, 2);
  tensors.experts(block + "ffn_up_exps.weight", e, f, count, 1);
  tensors.experts(block + "ffn_down_exps.weight", f, e, count, 1);
  if (options.architecture == "gpt-oss") {
    tensors.vector(block + "ffn_gate_inp.bias", count, 0);
    tensors.expert_biases(block + "ffn_gate_exps.bias", f, count);
    tensors.expert_biases(block + "ffn_up_exps.bias", f, count);
    tensors.expert_biases(block + "ffn_down_exps.bias", e, count);
  }
  const std::int64_t shared = options.shared_feed_forward;
  if (shared == 0) return;
  tensors.vector(block + "ffn_gate_inp_shexp.weight", e, 0);
  tensors.matrix(block + "ffn_gate_shexp.weight", e, shared, 2);
  tensors.matrix(block + "ffn_up_shexp.weight", e, shared, 1);
  tensors.matrix(block + "ffn_down_shexp.weight", shared, e, 1);
}

void add_layer(Tensors& tensors, const TinyModelOptions& options, int index) {
  const std::int64_t e = options.embedding;
  const std::int64_t f = options.feed_forward;
  const std::string block = fmt::format("blk.{}.", index);
  add_attention(tensors, options, block);
  const bool oss = options.architecture == "gpt-oss";
  tensors.vector(block + (oss ? "post_attention_norm.weight" : "ffn_norm.weight"), e, 1);
  if (options.experts > 0) return add_experts(tensors, options, block);
  if (options.architecture == "phi3") {
    tensors.matrix(block + "ffn_up.weight", e, 2 * f, 2);
  } else {
    tensors.matrix(block + "ffn_gate.weight", e, f, 2);
    tensors.matrix(block + "ffn_up.weight", e, f, 1);
  }
  tensors.matrix(block + "ffn_down.weight", f, e, 1);
}

}  // namespace

TinyTokens tiny_tokens(TinyTokenizer tokenizer) {
  if (tokenizer == TinyTokenizer::kBytes) return {.begin = 256, .end = 258, .vocab = 259};
  return {.begin = 1, .end = 261, .vocab = 262};
}

GgufWriter tiny_model(const TinyModelOptions& options) {
  CHECK(options.heads % options.kv_heads == 0);
  GgufWriter out;
  out.set_string("general.architecture", options.architecture);
  out.set_string("general.name", "tiny");
  add_hyper_parameters(out, options);
  add_tokenizer(out, options);
  Tensors tensors(out, options);
  const std::int64_t vocab = std::max(options.vocab, tiny_tokens(options.tokenizer).vocab);
  tensors.matrix("token_embd.weight", options.embedding, vocab, 4);
  for (int i = 0; i < options.layers; ++i) add_layer(tensors, options, i);
  tensors.vector("output_norm.weight", options.embedding, 1);
  if (!options.tied) tensors.matrix("output.weight", options.embedding, vocab, 3);
  return out;
}

}  // namespace artery::testing
