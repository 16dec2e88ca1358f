// FR-F3 of ../shared/spec/field-reports.md: any part or the folder; what is missing is counted and
// named, parts of other models are told apart.

#include "model/format/gguf_split.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "model/format/open.h"
#include "model/load.h"
#include "testing/mem_file_system.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::GgufWriter;
using testing::MemFileSystem;

// The tensors of `whole` in `count` files, as gguf-split writes them: all keys in the first.
std::vector<GgufWriter> split(const std::string& bytes, std::uint32_t count) {
  MemFileSystem files;
  files.add("w.gguf", bytes);
  const auto whole = GgufFile::open("w.gguf", files).value();
  const auto total = static_cast<std::uint32_t>(whole->tensors().size());
  std::vector<GgufWriter> out(count);
  out[0] = testing::tiny_model({});
  for (const TensorInfo& tensor : whole->tensors()) out[0].remove_tensor(tensor.name);
  std::vector<std::byte> scratch;
  std::uint32_t index = 0;
  for (const TensorInfo& tensor : whole->tensors()) {
    const auto raw = whole->rows(tensor, 0, tensor.rows(), scratch).value();
    out[index++ * count / total].set_tensor(
        tensor.name,
        tensor.type,
        tensor.shape,
        std::string(reinterpret_cast<const char*>(raw.data()), raw.size())
    );
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i].set_unsigned("split.no", i);
    out[i].set_unsigned("split.count", count);
    out[i].set_signed("split.tensors.count", static_cast<std::int32_t>(total));
  }
  return out;
}

std::string part_path(int index) { return fmt::format("d/m-{:05}-of-00003.gguf", index); }

class SplitGgufTest : public ::testing::Test {
 protected:
  SplitGgufTest() : whole_(testing::tiny_model({}).bytes()), parts_(split(whole_, 3)) { write(); }
  void write() {
    for (int i = 0; i < 3; ++i)
      files_.add(part_path(i + 1), parts_[static_cast<std::size_t>(i)].bytes());
  }
  std::string refusal(const std::string& path = "d") {
    const auto file = open_model(path, files_);
    return file ? "accepted" : file.error().message;
  }
  void expect_refusal(std::initializer_list<const char*> pieces, const std::string& path = "d") {
    const std::string message = refusal(path);
    for (const char* piece : pieces) EXPECT_NE(message.find(piece), std::string::npos) << message;
  }
  std::string whole_;
  std::vector<GgufWriter> parts_;
  MemFileSystem files_;
};

TEST_F(SplitGgufTest, AnyPartAndTheFolderAreTheModel) {
  files_.add("w.gguf", whole_);
  const auto whole = GgufFile::open("w.gguf", files_).value();
  for (const std::string& path : {part_path(1), part_path(2), part_path(3), std::string("d")}) {
    const auto file = open_model(path, files_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->format(), "GGUF v3, 3 parts");
    EXPECT_EQ((*file)->files().size(), 3u);
    ASSERT_EQ((*file)->tensors().size(), whole->tensors().size());
    std::vector<std::byte> scratch;
    for (const TensorInfo& tensor : whole->tensors()) {
      const TensorInfo* same = (*file)->find(tensor.name);
      ASSERT_NE(same, nullptr);
      const auto a = (*file)->rows(*same, 0, same->rows(), scratch).value();
      const auto b = whole->rows(tensor, 0, tensor.rows(), scratch).value();
      EXPECT_TRUE(std::ranges::equal(a, b)) << tensor.name;
    }
    const auto info = check_model(**file);
    EXPECT_TRUE(info) << info.error().message;
  }
}

TEST_F(SplitGgufTest, OneDigestWhateverPartIsGiven) {
  std::string first;
  for (const std::string& path : {part_path(1), part_path(3), std::string("d")}) {
    tensor::ComputePool pool(1);
    const auto backend = tensor::make_fast_backend(pool, tensor::best_isa());
    const auto file = open_model(path, files_).value();
    const auto loaded = load_model(*file, *backend, {}).value();
    if (first.empty()) first = loaded->info().weights_digest;
    EXPECT_EQ(loaded->info().weights_digest, first);
  }
  EXPECT_EQ(first.size(), 64u);
}

TEST_F(SplitGgufTest, MissingPartsAreNamed) {
  files_.remove(part_path(2));
  for (const std::string& path : {std::string("d"), part_path(3)}) {
    expect_refusal({"2 of 3 parts found; missing: m-00002-of-00003.gguf; fetch them"}, path);
  }
}

TEST_F(SplitGgufTest, PartsOfOtherModelsAreToldApart) {
  parts_[1].set_signed("split.tensors.count", 99);
  write();
  expect_refusal({part_path(2).c_str(), "split.tensors.count is 99", "in d/m-00001", "it is 21"});
  parts_[1].set_signed("split.tensors.count", 21);
  parts_[1].set_string("general.architecture", "qwen2");
  write();
  expect_refusal({"general.architecture is 'qwen2'", "it is 'llama': parts of different models"});
  parts_ = split(whole_, 3);
  parts_[2].set_unsigned("split.no", 1);
  write();
  expect_refusal({part_path(3).c_str(), "split.no is 1, but its name makes it part 3"});
  parts_ = split(whole_, 3);
  parts_[2].set_unsigned("split.count", 4);
  write();
  expect_refusal({part_path(3).c_str(), "split.count is 4"});
}

TEST_F(SplitGgufTest, TensorsTwiceOrTooFewAreRefused) {
  parts_[2].set_tensor("token_embd.weight", tensor::DType::kF32, {1}, std::string(4, '\0'));
  write();
  expect_refusal({"duplicate tensor name token_embd.weight"});
  parts_ = split(whole_, 3);
  parts_[2].remove_tensor("output_norm.weight");
  write();
  expect_refusal({"split.tensors.count is 21, but the 3 parts have 20 tensors"});
}

TEST_F(SplitGgufTest, NamesAloneMakeNoParts) {
  files_.add("best-of-breed.gguf", parts_[1].bytes());
  expect_refusal(
      {"split.count is 3 and split.no 1, so this is part 2 of 3", "NAME-00002-of-00003.gguf"},
      "best-of-breed.gguf"
  );
  files_.add("x-00001-of-00002.gguf", whole_);
  EXPECT_EQ(refusal("x-00001-of-00002.gguf"), "accepted");
  parts_[0].set_unsigned("split.count", 1);
}

TEST_F(SplitGgufTest, AFolderHoldsOneModel) {
  files_.add("d/other.gguf", whole_);
  expect_refusal({"2 models in this folder; give one of them: m-00001-of-00003.gguf, other.gguf"});
  files_.add("e/only.gguf", whole_);
  EXPECT_EQ(refusal("e"), "accepted");
}

}  // namespace
}  // namespace artery::model
