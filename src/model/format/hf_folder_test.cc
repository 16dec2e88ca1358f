#include "model/format/hf_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "model/format/gguf.h"
#include "model/format/open.h"
#include "model/load.h"
#include "testing/hf_folder_maker.h"
#include "testing/model_runner.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::HfFolderFiles;
using testing::MemFileSystem;
using testing::SafetensorsWriter;
using testing::TinyModelOptions;
using testing::to_hf_folder;

std::unique_ptr<GgufFile> tiny_gguf(const TinyModelOptions& options) {
  MemFileSystem files;
  files.add("t.gguf", testing::tiny_model(options).bytes());
  return GgufFile::open("t.gguf", files).value();
}

HfFolderFiles tiny_folder(const TinyModelOptions& options = {}) {
  return to_hf_folder(*tiny_gguf(options));
}

Result<std::unique_ptr<ModelFile>> open(const HfFolderFiles& folder, int shards = 1) {
  MemFileSystem files;
  folder.add_to(files, "dir/tiny", shards);
  return open_model("dir/tiny", files);
}

std::string refusal(const HfFolderFiles& folder) {
  const auto file = open(folder);
  return file ? "accepted" : file.error().message;
}

std::vector<float> logits(const ModelFile& file) {
  tensor::ComputePool pool(2);
  const auto backend = tensor::make_fast_backend(pool, tensor::best_isa());
  auto loaded = load_model(file, *backend, {});
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return {};
  }
  auto runner = testing::ModelRunner::make(**loaded, 64).value();
  const TokenId vocab = static_cast<TokenId>((*loaded)->info().vocab_size);
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 40; ++i) ids.push_back((i * 37 + 5) % vocab);
  return runner.run_all(ids, 16);
}

TEST(HfFolder, GivesTheBitsOfTheSameWeightsInGguf) {
  const std::vector<TinyModelOptions> forms = {
      {},
      {.heads = 4, .kv_heads = 1, .head_dim = 32, .tied = true},
      {.weight_type = tensor::DType::kBF16},
      {.weight_type = tensor::DType::kF16},
      {.architecture = "qwen2"},
  };
  for (const TinyModelOptions& form : forms) {
    SCOPED_TRACE(form.architecture + std::string(tensor::name(form.weight_type)));
    const auto gguf = tiny_gguf(form);
    const std::vector<float> expected = logits(*gguf);
    ASSERT_FALSE(expected.empty());
    for (const int shards : {1, 3}) {
      const auto folder = open(to_hf_folder(*gguf), shards);
      ASSERT_TRUE(folder) << folder.error().message;
      EXPECT_EQ(logits(**folder), expected);
    }
  }
}

TEST(HfFolder, Stories260KGivesTheSameBits) {
  const char* models = std::getenv("ARTERY_MODELS");
  const std::string path =
      (models != nullptr ? models : std::string(ARTERY_SOURCE_DIR) + "/build/models") +
      "/stories260K.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const auto gguf = GgufFile::open(path).value();
  const auto folder = open(to_hf_folder(*gguf), 2);
  ASSERT_TRUE(folder) << folder.error().message;
  EXPECT_EQ(logits(**folder), logits(*gguf));
}

TEST(HfFolder, TellsWhatItIs) {
  const auto file = open(tiny_folder(), 3).value();
  EXPECT_EQ(file->format(), "safetensors, 3 files");
  EXPECT_EQ(file->folder(), "dir/tiny");
  EXPECT_EQ(file->files().size(), 4u);
  EXPECT_EQ(file->get_string("general.name").value(), "tiny");
  const TensorInfo* q = file->find("blk.1.attn_q.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->source, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(q->source_type, "F32");
  EXPECT_EQ(q->shape, (std::vector<std::int64_t>{64, 64}));
  const auto info = check_model(*file);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->name, "tiny");
  EXPECT_EQ(info->layers, 2);
}

TEST(HfFolder, AFileOfItOpensTheFolder) {
  MemFileSystem files;
  tiny_folder().add_to(files, "dir/tiny", 2);
  for (const char* path : {"dir/tiny/", "dir/tiny/model-00002-of-00002.safetensors"}) {
    const auto file = open_model(path, files);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->tensors().size(), 21u);
  }
}

TEST(BareSafetensors, OpensButIsNoModel) {
  MemFileSystem files;
  SafetensorsWriter writer;
  writer.set("e", "F32", {0, 5}, "");
  writer.set("s", "U8", {}, "x");
  writer.set("q", "F4", {2, 3}, "abc");
  writer.set_values("w", "BF16", {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  files.add("w.safetensors", writer.bytes());
  const auto file = open_model("w.safetensors", files);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->tensors().size(), 4u);
  std::vector<std::byte> scratch;
  for (const TensorInfo& tensor : (*file)->tensors()) {
    EXPECT_EQ((*file)->rows(tensor, 0, tensor.rows(), scratch).value().size(), tensor.bytes);
  }
  EXPECT_EQ((*file)->find("q")->source_type, "F4");
  const auto info = check_model(**file);
  ASSERT_FALSE(info);
  EXPECT_NE(
      info.error().message.find("w.safetensors: a safetensors file without config.json"),
      std::string::npos
  );
}

struct Spoiled {
  void (*spoil)(HfFolderFiles&);
  const char* piece;
};

const Spoiled kSpoiled[] = {
    {[](HfFolderFiles& f) { f.tensors.remove("model.layers.1.mlp.up_proj.weight"); },
     "missing tensor model.layers.1.mlp.up_proj.weight (config.json: llama, num_hidden_layers 2)"},
    {[](HfFolderFiles& f) { f.tensors.remove("lm_head.weight"); },
     "missing tensor lm_head.weight (config.json: tie_word_embeddings is false)"},
    {[](HfFolderFiles& f) {
       f.set("num_attention_heads", "8");
       f.set("head_dim", "16");
     },
     "tensor model.layers.0.self_attn.q_proj.weight in dir/tiny/model.safetensors has shape "
     "[64, 64], expected [128, 64] (config.json: num_attention_heads 8 x head_dim 16, "
     "hidden_size 64)"},
    {[](HfFolderFiles& f) { f.set("vocab_size", "260"); },
     "tensor model.embed_tokens.weight in dir/tiny/model.safetensors has shape [259, 64], "
     "expected [260, 64] (config.json: vocab_size 260, hidden_size 64)"},
    {[](HfFolderFiles& f) { f.set("num_hidden_layers", "1"); },
     "config.json: num_hidden_layers is 1, but there is tensor model.layers.1."},
    {[](HfFolderFiles& f) { f.set("num_hidden_layers", "3"); },
     "missing tensor model.layers.2.input_layernorm.weight"},
    {[](HfFolderFiles& f) { f.set("num_hidden_layers", "\"2\""); },
     "config.json: num_hidden_layers is '2', expected an integer"},
    {[](HfFolderFiles& f) { f.set("hidden_size", ""); }, "config.json: hidden_size is missing"},
    {[](HfFolderFiles& f) { f.set("hidden_size", "1e999"); }, "config.json: "},
    {[](HfFolderFiles& f) { f.set("num_key_value_heads", "3"); },
     "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
    {[](HfFolderFiles& f) { f.set("model_type", "\"bert\""); },
     "unknown model_type 'bert' (supported: llama, mistral"},
    {[](HfFolderFiles& f) { f.set("model_type", ""); }, "model_type is missing"},
    {[](HfFolderFiles& f) { f.set("hidden_act", "\"relu\""); }, "hidden_act is 'relu'"},
    {[](HfFolderFiles& f) { f.set("mlp_bias", "true"); }, "mlp_bias is true"},
    {[](HfFolderFiles& f) { f.set("attention_bias", "true"); },
     "attention_bias is true, but tensor model.layers.0.self_attn.q_proj.bias is missing"},
    {[](HfFolderFiles& f) {
       f.set("attention_bias", "false");
       f.tensors.set_values(
           "model.layers.0.self_attn.k_proj.bias", "F32", {32}, std::vector<float>(32)
       );
     },
     "attention_bias is false, but tensor model.layers.0.self_attn.k_proj.bias is there"},
    {[](HfFolderFiles& f) {
       f.tensors.set_values(
           "model.layers.0.self_attn.q_norm.weight", "F32", {16}, std::vector<float>(16)
       );
     },
     "tensor model.layers.0.self_attn.q_norm.weight in dir/tiny/model.safetensors has no place"},
    {[](HfFolderFiles& f) {
       f.tensors.set("model.norm.weight", "I32", {64}, std::string(256, '\0'));
     },
     "tensor model.norm.weight has dtype I32, expected BF16, F16, F32"},
    {[](HfFolderFiles& f) {
       f.tensors.set("lm_head.weight", "F8_E4M3", {259, 64}, std::string(259 * 64, '\1'));
     },
     "tensor lm_head.weight has dtype F8_E4M3, but there is no lm_head.weight_scale_inv"},
    {[](HfFolderFiles& f) {
       f.tensors.set("lm_head.weight", "F8_E4M3", {259, 64}, std::string(259 * 64, '\1'));
       f.tensors.set_values("lm_head.weight_scale_inv", "F32", {2, 1}, std::vector<float>{1, 2});
     },
     "tensor lm_head.weight_scale_inv (F32 [2, 1]) fits no scales of a matrix [259, 64]"},
    {[](HfFolderFiles& f) { f.set("rope_scaling", "{\"type\":\"dynamic\",\"factor\":2}"); },
     "rope_scaling.rope_type 'dynamic' is not supported"},
    {[](HfFolderFiles& f) { f.set("rope_scaling", "{\"type\":\"linear\"}"); },
     "rope_scaling.factor is missing"},
    {[](HfFolderFiles& f) {
       f.set(
           "rope_scaling",
           "{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,1,1],"
           "\"original_max_position_embeddings\":64}"
       );
     },
     "rope_scaling.long_factor must be an array of 8 numbers"},
};

TEST(HfFolder, RefusesByItsOwnNames) {
  for (const Spoiled& c : kSpoiled) {
    SCOPED_TRACE(c.piece);
    HfFolderFiles folder = tiny_folder();
    c.spoil(folder);
    const std::string message = refusal(folder);
    EXPECT_EQ(message.find("dir/tiny"), 0u) << message;
    EXPECT_NE(message.find(c.piece), std::string::npos) << message;
  }
}

TEST(HfFolder, QuantizationsAreKnownByName) {
  for (const char* method : {"gptq", "awq", "bitsandbytes", "compressed-tensors", "modelopt"}) {
    HfFolderFiles folder = tiny_folder();
    folder.set("quantization_config", fmt::format("{{\"quant_method\":\"{}\"}}", method));
    const auto file = open(folder);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, Code::kUnsupported);
    EXPECT_NE(file.error().message.find(fmt::format("'{}'", method)), std::string::npos);
  }
  for (const char* known :
       {"{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}",
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"weights\":"
        "{\"num_bits\":8,\"type\":\"float\"}}}}",
        "{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}"}) {
    HfFolderFiles folder = tiny_folder();
    folder.set("quantization_config", known);
    EXPECT_EQ(refusal(folder), "accepted");
  }
}

TEST(HfFolder, MissingShardsAreCountedAndNamed) {
  MemFileSystem files;
  tiny_folder().add_to(files, "d", 4);
  const std::string last = "d/model-00004-of-00004.safetensors";
  files.add(last, "");
  std::string message = open_model("d", files).error().message;
  for (const char* piece :
       {"d: 3 of 4 shards found (model-00001-of-00004.safetensors",
        "missing or empty: model-00004-of-00004.safetensors, with 6 of 21 "
        "tensors; finish the download"})
    EXPECT_NE(message.find(piece), std::string::npos) << message;
  files.remove(last);
  files.add(last + ".incomplete", "x");
  EXPECT_EQ(open_model("d", files).error().message, message);
  // The same without the index: by the names.
  files.remove("d/model.safetensors.index.json");
  message = open_model("d", files).error().message;
  EXPECT_NE(message.find("3 of 4 shards found"), std::string::npos) << message;
  EXPECT_NE(message.find("model-00004-of-00004.safetensors;"), std::string::npos) << message;
}

TEST(HfFolder, IndexAndShardsMustAgree) {
  const HfFolderFiles folder = tiny_folder();
  auto message = [&](auto&& change) {
    MemFileSystem files;
    folder.add_to(files, "d", 2);
    change(files);
    const auto file = open_model("d", files);
    return file ? "accepted, " + fmt::format("{}", fmt::join((*file)->warnings(), ";"))
                : file.error().message;
  };
  const std::string index = "d/model.safetensors.index.json";
  auto with_index = [&](std::string_view from, std::string_view to) {
    return message([&](MemFileSystem& files) {
      std::string text = files.read(index, 1 << 20).value();
      const std::size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos);
      files.add(index, text.replace(at, from.size(), to));
    });
  };
  EXPECT_NE(
      with_index("model.norm.weight", "model.other.weight").find("model.other.weight (in"),
      std::string::npos
  );
  EXPECT_NE(with_index("weight_map", "map").find("weight_map is missing"), std::string::npos);
  EXPECT_NE(
      with_index("model-00001-of", "../model-00001-of").find("expected a name in this folder"),
      std::string::npos
  );
  EXPECT_NE(with_index("}}", "}").find("is not valid JSON"), std::string::npos);
  EXPECT_NE(
      with_index(",\"model.norm.weight\":\"model-00002-of-00002.safetensors\"", "")
          .find("accepted, d: 1 tensors are not in model.safetensors.index.json: model.norm.weight"
          ),
      std::string::npos
  );
  const std::string twice = message([&](MemFileSystem& files) {
    files.add("d/model-00002-of-00002.safetensors", folder.tensors.bytes());
  });
  EXPECT_NE(
      twice.find("model.embed_tokens.weight is in d/model-00001-of-00002.safetensors and in"),
      std::string::npos
  ) << twice;
  const std::string cut =
      message([&](MemFileSystem& files) { files.cut("d/model-00002-of-00002.safetensors", 3000); });
  EXPECT_NE(cut.find("d/model-00002-of-00002.safetensors: "), std::string::npos) << cut;
}

TEST(HfFolder, OtherFoldersAreTold) {
  MemFileSystem files;
  files.add("a/config.json", "{\"model_type\":\"llama\"}");
  EXPECT_NE(
      open_model("a", files).error().message.find("a/config.json: num_hidden_layers"),
      std::string::npos
  );
  HfFolderFiles folder = tiny_folder();
  files.add("b/config.json", folder.config_text());
  files.add("b/pytorch_model.bin", "x");
  EXPECT_EQ(open_model("b", files).error().code, Code::kUnsupported);
  EXPECT_NE(open_model("b", files).error().message.find("pytorch_model.bin"), std::string::npos);
  files.add("c/notes.txt", "x");
  EXPECT_NE(
      open_model("c", files).error().message.find("without config.json and without a .gguf"),
      std::string::npos
  );
  files.add("e/one.safetensors", folder.tensors.bytes());
  files.add("e/two.safetensors", folder.tensors.bytes());
  EXPECT_NE(open_model("e", files).error().message.find("no config.json"), std::string::npos);
  files.add("e/config.json", folder.config_text());
  EXPECT_NE(
      open_model("e", files).error().message.find("one.safetensors, two.safetensors"),
      std::string::npos
  );
  EXPECT_EQ(open_model("none", files).error().code, Code::kNotFound);
}

TEST(HfFolder, TensorsBesideTheLayersAreAWarning) {
  HfFolderFiles folder = tiny_folder();
  folder.tensors.set_values("vision_tower.w", "F32", {4}, std::vector<float>(4));
  folder.tensors.set_values(
      "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8}, std::vector<float>(8)
  );
  const auto file = open(folder);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ((*file)->warnings().size(), 1u);
  EXPECT_NE(
      (*file)->warnings()[0].find("1 tensors are not used: vision_tower.w"), std::string::npos
  );
}

TEST(HfFolder, Fp8WeightsGiveTheBitsOfTheirValues) {
  HfFolderFiles plain = tiny_folder();
  HfFolderFiles coded = tiny_folder();
  std::string codes;
  std::vector<float> values;
  const std::vector<float> scales{0.5f, 0.25f, 2.0f};
  for (int i = 0; i < 259 * 64; ++i) {
    const auto code = static_cast<std::uint8_t>((i * 31 + i / 64) % 112 + (i % 2) * 128);
    codes += static_cast<char>(code);
    values.push_back(e4m3_value(code) * scales[static_cast<std::size_t>(i / 64 / 128)]);
  }
  plain.tensors.set_values("lm_head.weight", "F32", {259, 64}, values);
  coded.tensors.set("lm_head.weight", "F8_E4M3", {259, 64}, codes);
  coded.tensors.set_values("lm_head.weight_scale_inv", "F32", {3, 1}, scales);
  const auto file = open(coded);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->find("output.weight")->source_type, "F8_E4M3");
  EXPECT_EQ(logits(**file), logits(*open(plain).value()));
}

TEST(HfFolder, Fp8OfWholeBlocksStaysFp8) {
  const TinyModelOptions wide{.embedding = 128};
  HfFolderFiles folder = tiny_folder(wide);
  folder.tensors.set("lm_head.weight", "F8_E4M3", {259, 128}, std::string(259 * 128, '8'));
  folder.tensors.set_values("lm_head.weight_scale", "BF16", {}, std::vector<float>{0.5f});
  const auto file = open(folder);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->find("output.weight")->type, tensor::DType::kF8E4M3);
  HfFolderFiles plain = tiny_folder(wide);
  const std::vector<float> values(259 * 128, e4m3_value('8') * 0.5f);
  plain.tensors.set_values("lm_head.weight", "F32", {259, 128}, values);
  const std::vector<float> coded = logits(**file);
  const std::vector<float> expected = logits(*open(plain).value());
  ASSERT_EQ(coded.size(), expected.size());
  // FP8 rounds its activations, F32 does not.
  for (std::size_t i = 0; i < coded.size(); i += 259)
    EXPECT_NEAR(coded[i], expected[i], 0.02f * (1 + std::abs(expected[i]))) << i;
}

TEST(HfFolder, RopeScalingBecomesKeysAndTensors) {
  auto opened = [](const char* rope) {
    HfFolderFiles folder = tiny_folder();
    folder.set("rope_scaling", rope);
    return open(folder).value();
  };
  const auto yarn = opened(
      "{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":128,"
      "\"attention_factor\":1.0,\"truncate\":false}"
  );
  EXPECT_EQ(yarn->get_string("llama.rope.scaling.type").value(), "yarn");
  EXPECT_EQ(yarn->get_float("llama.rope.scaling.factor").value(), 4.0);
  EXPECT_EQ(yarn->get_unsigned("llama.rope.scaling.original_context_length").value(), 128u);
  EXPECT_NEAR(
      yarn->get_float("llama.rope.scaling.attn_factor").value(), 1 / (1 + 0.1 * std::log(4)), 1e-12
  );
  EXPECT_FALSE(yarn->get_bool("llama.rope.scaling.yarn_truncate").value());
  // Wavelengths of base 10000 and 16 dimensions: 6.28, 19.9, 62.8, 199, ... of 64 positions.
  const auto llama3 = opened(
      "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":64}"
  );
  const TensorInfo* freqs = llama3->find("rope_freqs.weight");
  ASSERT_NE(freqs, nullptr);
  std::vector<std::byte> scratch;
  const auto raw = llama3->rows(*freqs, 0, 1, scratch).value();
  std::vector<float> divisors(8);
  ASSERT_EQ(raw.size(), 32u);
  std::memcpy(divisors.data(), raw.data(), raw.size());
  EXPECT_EQ(divisors[0], 1.0f);
  const double smooth = (64 / (2 * M_PI * std::sqrt(10.0)) - 1) / 3;
  EXPECT_NEAR(divisors[1], 1 / ((1 - smooth) / 8 + smooth), 1e-6);
  EXPECT_EQ(divisors[3], 8.0f);
  EXPECT_EQ(divisors[7], 8.0f);
  const auto longrope = opened(
      "{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"
      "\"long_factor\":[1,2,3,4,5,6,7,8.5],\"original_max_position_embeddings\":64}"
  );
  EXPECT_NE(longrope->find("rope_factors_long.weight"), nullptr);
  EXPECT_NEAR(
      longrope->get_float("llama.rope.scaling.attn_factor").value(),
      std::sqrt(1 + std::log(512.0 / 64) / std::log(64.0)),
      1e-12
  );
}

}  // namespace
}  // namespace artery::model
