// Layers with sliding windows without an engine, on hand-made page tables: a window's entries can
// be built anew, bit for bit, by running the last rows again over the global entries there are.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/format/gguf.h"
#include "model/load.h"
#include "testing/mem_file_system.h"
#include "testing/tiny_model.h"

namespace artery::model {
namespace {

using testing::TinyModelOptions;
using Logits = std::vector<float>;

constexpr Position kTokens = 330;
constexpr Position kResume = 262;  // within a page

// The KV of one sequence, all pages of it.
struct Memory {
  explicit Memory(const KvLayout& layout) {
    for (const KvGroup& group : layout.groups) {
      const auto bytes = static_cast<std::size_t>(group.geometry.page_bytes()) * kPages;
      groups.emplace_back(bytes, std::byte{0xFF});
    }
  }
  static constexpr std::size_t kPages = (kTokens + kPageTokens - 1) / kPageTokens;
  std::vector<std::vector<std::byte>> groups;
};

class Windows : public ::testing::TestWithParam<bool> {
 protected:
  // `true`: reference numerics.
  void load(const TinyModelOptions& options) {
    testing::MemFileSystem files;
    files.add("w.gguf", testing::tiny_model(options).bytes());
    const auto file = GgufFile::open("w.gguf", files);
    ASSERT_TRUE(file) << file.error().message;
    backend_ = GetParam() ? tensor::make_reference_backend(pool_)
                          : tensor::make_fast_backend(pool_, tensor::best_isa());
    LoadOptions load_options;
    load_options.kv_type = GetParam() ? tensor::KvType::kF64 : tensor::KvType::kI16;
    auto model = load_model(**file, *backend_, load_options);
    ASSERT_TRUE(model) << model.error().message;
    model_ = model.take();
    layout_ = model_->kv_layout();
    ASSERT_EQ(layout_.groups.size(), 2u);
    ASSERT_EQ(layout_.groups[1].kind, KvKind::kWindow);
    ASSERT_EQ(layout_.groups[1].window_tokens, options.window);
    tokens_.resize(kTokens);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<TokenId>((i * i + 7 * i) % 251);
  }

  // Rows [begin, end) over `memory`; window entries before `first` are gone, global ones before
  // `write_from` stay as they are. Logits of all rows.
  Logits run(
      Memory& memory, Position begin, Position end, Position first = 0, Position write_from = 0
  ) {
    std::vector<Position> positions(static_cast<std::size_t>(end - begin));
    std::iota(positions.begin(), positions.end(), begin);
    std::vector<std::int32_t> rows(positions.size());
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<std::int32_t> offsets = {0, end - begin};
    std::vector<PageId> global(Memory::kPages);
    std::iota(global.rbegin(), global.rend(), PageId{0});
    std::vector<PageId> window(Memory::kPages);
    std::iota(window.begin(), window.end(), PageId{0});
    std::fill_n(window.begin(), first / kPageTokens, kNoPage);
    const auto pages_max = static_cast<std::int64_t>(Memory::kPages);
    const std::vector<PageTable> tables = {
        {global, pages_max, {}, std::span(&write_from, 1)},
        {window, pages_max, std::span(&first, 1)}
    };
    std::vector<tensor::KvPages> kv;
    for (std::size_t g = 0; g < 2; ++g)
      kv.push_back({memory.groups[g].data(), layout_.groups[g].geometry});
    ForwardBatch batch;
    batch.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(begin), positions.size());
    batch.positions = positions;
    batch.offsets = offsets;
    batch.page_tables = tables;
    batch.kv = kv;
    batch.logit_rows = rows;
    Logits logits(rows.size() * static_cast<std::size_t>(model_->info().vocab_size));
    model_->forward(batch, logits);
    return logits;
  }

  // The window entries before kResume from `rows` rows that run again; what follows them.
  Logits rebuild(const Memory& whole, Position rows, Memory& memory) {
    memory.groups[0] = whole.groups[0];
    const Position start = kResume - rows;
    run(memory, start, kResume, start, kResume);
    EXPECT_TRUE(memory.groups[0] == whole.groups[0]) << "global entries were written";
    const Position first = kResume - layout_.groups[1].window_tokens + 1;
    return run(memory, kResume, kTokens, first, 0);
  }

  void expect_exact_rebuild(const TinyModelOptions& options) {
    load(options);
    Memory whole(layout_);
    const Logits all = run(whole, 0, kTokens);
    const auto vocab = static_cast<std::ptrdiff_t>(model_->info().vocab_size);
    const Logits expected(all.begin() + kResume * vocab, all.end());
    const Position window = options.window;
    const Position rows = layout_.groups[1].geometry.layers * (window - 1);
    ASSERT_LT(rows, kResume);
    Memory rebuilt(layout_);
    EXPECT_EQ(rebuild(whole, rows, rebuilt), expected);
    const auto page = static_cast<std::size_t>(layout_.groups[1].geometry.page_bytes());
    for (Position p = (kResume - window) / kPageTokens + 1; p < kResume / kPageTokens; ++p) {
      const std::size_t at = static_cast<std::size_t>(p) * page;
      EXPECT_EQ(std::memcmp(&rebuilt.groups[1][at], &whole.groups[1][at], page), 0) << p;
    }
    // One row less and the oldest entry of the highest window layer is another.
    Memory short_of_one(layout_);
    if (GetParam()) {
      EXPECT_NE(rebuild(whole, rows - 1, short_of_one), expected);
    }
  }

  tensor::ComputePool pool_{2};
  std::unique_ptr<tensor::Backend> backend_;
  std::unique_ptr<Model> model_;
  KvLayout layout_;
  std::vector<TokenId> tokens_;
};

TEST_P(Windows, OfGemmaAreRebuiltExactly) {
  expect_exact_rebuild({.architecture = "gemma3", .layers = 6, .window = 37});
}

TEST_P(Windows, OfAllLayersAreRebuiltExactly) {
  expect_exact_rebuild({.architecture = "llama", .layers = 3, .window = 50});
  EXPECT_EQ(layout_.groups[0].geometry.layers, 0);
}

TEST_P(Windows, BetweenGlobalLayersAreRebuiltExactly) {
  TinyModelOptions options{
      .architecture = "gpt-oss", .layers = 4, .feed_forward = 32, .window = 40
  };
  options.experts = 4;
  load(options);
  Memory whole(layout_);
  const Logits all = run(whole, 0, kTokens);
  const auto vocab = static_cast<std::ptrdiff_t>(model_->info().vocab_size);
  Memory rebuilt(layout_);
  const Logits expected(all.begin() + kResume * vocab, all.end());
  EXPECT_EQ(rebuild(whole, 2 * 39, rebuilt), expected);
}

TEST_P(Windows, EntriesBehindThemAreNotRead) {
  load({.architecture = "gemma3", .layers = 6, .window = 37});
  Memory whole(layout_);
  const Logits all = run(whole, 0, kTokens);
  const auto vocab = static_cast<std::ptrdiff_t>(model_->info().vocab_size);
  Memory spoiled(layout_);
  run(spoiled, 0, kResume);
  const auto page = static_cast<std::size_t>(layout_.groups[1].geometry.page_bytes());
  const Position first = kResume - 36;
  std::fill_n(
      spoiled.groups[1].begin(),
      static_cast<std::size_t>(first / kPageTokens) * page,
      std::byte{0xFF}
  );
  const Logits expected(all.begin() + kResume * vocab, all.end());
  EXPECT_EQ(run(spoiled, kResume, kTokens, first), expected);
}

INSTANTIATE_TEST_SUITE_P(Numerics, Windows, ::testing::Bool(), [](const auto& numerics) {
  return numerics.param ? "Reference" : "Fast";
});

TEST(KvGroups, AWindowAsLongAsTheContextIsGlobal) {
  testing::MemFileSystem files;
  files.add(
      "w.gguf", testing::tiny_model({.architecture = "gemma3", .layers = 7, .window = 64}).bytes()
  );
  const auto file = GgufFile::open("w.gguf", files);
  ASSERT_TRUE(file);
  tensor::ComputePool pool(1);
  const auto backend = tensor::make_fast_backend(pool, tensor::best_isa());
  for (const std::int64_t context : {64, 65}) {
    LoadOptions options;
    options.context_max = context;
    const auto model = load_model(**file, *backend, options);
    ASSERT_TRUE(model) << model.error().message;
    const KvLayout layout = (*model)->kv_layout();
    if (context == 64) {
      ASSERT_EQ(layout.groups.size(), 1u);
      EXPECT_EQ(layout.groups[0].geometry.layers, 7);
      continue;
    }
    ASSERT_EQ(layout.groups.size(), 2u);
    EXPECT_EQ(layout.groups[0].geometry.layers, 1);  // layer 5
    EXPECT_EQ(layout.groups[1].geometry.layers, 6);
    EXPECT_EQ(layout.groups[1].entry_bytes, 6 * layout.groups[0].entry_bytes);
  }
}

}  // namespace
}  // namespace artery::model
