#include "engine/pool_size.h"

#include <gtest/gtest.h>

#include "base/memory_limit.h"
#include "engine/engine.h"
#include "testing/hash_model.h"

namespace artery::engine {
namespace {

using testing::HashModel;

constexpr std::int64_t kPage = 256;  // bytes of HashModel's page

Result<PoolSize> size(std::int64_t max_len, std::int64_t pool_bytes, std::int64_t memory) {
  HashModel model(64, 32'768);
  EXPECT_EQ(HashModel::page_bytes(), kPage);
  Config config;
  config.max_model_len = max_len;
  config.kv_pool_bytes = pool_bytes;
  return size_pool(config, model.info(), model.kv_layout(), memory);
}

TEST(PoolSize, DefaultIsTheModelsContextTwice) {
  const auto made = size(0, 0, 1 << 30);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->max_model_len, 32'768);
  EXPECT_EQ(made->pages, 2 * 2048);
}

TEST(PoolSize, DefaultTakesAQuarterOfTightMemoryAndShortensTheContext) {
  const auto made = size(0, 0, 4 * 100 * kPage);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->pages, 100);
  EXPECT_EQ(made->max_model_len, 1600);
}

TEST(PoolSize, AskedForContextMustFit) {
  const auto fits = size(1600, 0, 130 * kPage);
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->max_model_len, 1600);
  EXPECT_EQ(fits->pages, 100);
  const auto too_long = size(3200, 0, 130 * kPage);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, Code::kOutOfMemory);
  EXPECT_NE(too_long.error().message.find("3200"), std::string::npos);
  EXPECT_NE(too_long.error().message.find("--max-model-len 2080"), std::string::npos);
  EXPECT_NE(too_long.error().message.find("--kv-pool-bytes"), std::string::npos);
}

TEST(PoolSize, PoolBytesAreKept) {
  const auto made = size(0, 50 * kPage + 17, 1 << 30);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->pages, 50);
  EXPECT_EQ(made->max_model_len, 800);
  EXPECT_EQ(size(801, 50 * kPage, 1 << 30).error().code, Code::kOutOfMemory);
  EXPECT_EQ(size(0, 50 * kPage, 40 * kPage).error().code, Code::kOutOfMemory);
  EXPECT_EQ(size(0, 10, 1 << 30).error().field, "--kv-pool-bytes");
}

TEST(PoolSize, ContextBeyondTheModelIsRefused) {
  EXPECT_EQ(size(32'769, 0, 1 << 30).error().field, "--max-model-len");
}

TEST(PoolSize, NoMemoryAtAllIsAnErrorNotACrash) {
  EXPECT_EQ(size(0, 0, 0).error().code, Code::kOutOfMemory);
  EXPECT_TRUE(size(0, 0, -1));  // unknown: the allocation will tell
}

TEST(PoolSize, MakeEngineReportsIt) {
  Config config;
  config.kv_pool_bytes = std::int64_t{1} << 50;
  const auto engine = make_engine(std::make_unique<HashModel>(64, 1024), config);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kOutOfMemory);
}

// Gemma 3 270M: 18 layers, 15 of them with a window of 512.
model::KvLayout gemma3_270m() {
  model::KvLayout layout;
  for (const auto kind : {model::KvKind::kGlobal, model::KvKind::kWindow}) {
    model::KvGroup group;
    group.kind = kind;
    group.geometry = {kind == model::KvKind::kWindow ? 15 : 3, 1, 256, tensor::KvType::kI16};
    if (kind == model::KvKind::kWindow) group.window_tokens = 512;
    layout.groups.push_back(group);
  }
  return layout;
}

// Mistral 7B v0.1: 32 layers with a window of 4096.
model::KvLayout mistral_7b() {
  model::KvLayout layout;
  model::KvGroup group;
  group.kind = model::KvKind::kWindow;
  group.geometry = {32, 8, 128, tensor::KvType::kI16};
  group.window_tokens = 4096;
  layout.groups.push_back(group);
  return layout;
}

Result<PoolSize> size_windows(
    const model::KvLayout& layout,
    std::int64_t max_len,
    std::int64_t pool_bytes,
    std::int64_t memory
) {
  model::ModelInfo info;
  info.context_length = 32'768;
  Config config;
  config.max_model_len = max_len;
  config.kv_pool_bytes = pool_bytes;
  return size_pool(config, info, layout, memory);
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

void expect_sound(const PoolSize& size, const model::KvLayout& layout, std::int64_t limit) {
  EXPECT_LE(size.bytes(), limit);
  EXPECT_GE(size.slots, 1);
  EXPECT_GE(size.pages, (size.max_model_len + 15) / 16);
  EXPECT_GE(size.window_pages, size.window_pages_running);
  EXPECT_EQ(
      size.window_pages_running,
      window_pages_running(WindowShape::of(layout), size.slots, 512, size.max_model_len)
  );
}

TEST(PoolSize, AWindowedModelTakesLessThanIfItHadNone) {
  const auto made = size_windows(gemma3_270m(), 0, 0, 16 * kGiB);
  ASSERT_TRUE(made);
  expect_sound(*made, gemma3_270m(), 2 * 2048 * 18 * (std::int64_t{2} * (256 * 32 + 64)));
  EXPECT_EQ(made->max_model_len, 32'768);
  EXPECT_EQ(made->pages, 2 * 2048);
  EXPECT_EQ(made->slots, 64);
  // 32 pages before a boundary and 2 more each, and two steps of 512 rows.
  EXPECT_EQ(made->window_pages_running, 64 * 34 + 64);
  EXPECT_EQ(made->window_pages, made->window_pages_running * 5 / 4);
}

// A quarter of what four sequences can hold is a window and a half: conversations need more.
TEST(PoolSize, FewSlotsStillKeepEightWindows) {
  model::ModelInfo info;
  info.context_length = 32'768;
  Config config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  const auto made = size_pool(config, info, gemma3_270m(), 16 * kGiB);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->window_pages_running, 4 * 34 + 2);
  EXPECT_EQ(made->window_pages, made->window_pages_running + 8 * 32);
  // A pool that has no room for them still takes its sequences.
  config.kv_pool_bytes = 64 << 20;
  const auto tight = size_pool(config, info, gemma3_270m(), 16 * kGiB);
  ASSERT_TRUE(tight);
  EXPECT_LE(tight->bytes(), 64 << 20);
  EXPECT_LT(tight->window_pages, made->window_pages);
  EXPECT_GE(tight->window_pages, tight->window_pages_running);
}

TEST(PoolSize, WideWindowsMeanFewerSequencesAtOnce) {
  const auto made = size_windows(mistral_7b(), 0, 0, 32 * kGiB);
  ASSERT_TRUE(made);
  expect_sound(*made, mistral_7b(), 8 * kGiB);
  EXPECT_EQ(made->page_bytes, 0);
  EXPECT_EQ(made->max_model_len, 32'768);
  EXPECT_GE(made->slots, 8);
  EXPECT_LT(made->slots, 16);
  EXPECT_EQ(made->pages, 2 * made->slots * 2048);
}

TEST(PoolSize, OneSequenceMustFitWithItsWindow) {
  // A window of 4096 is 258 pages of 2 MiB; two steps add 64.
  const auto tight = size_windows(mistral_7b(), 0, 700 << 20, 16 * kGiB);
  ASSERT_TRUE(tight);
  expect_sound(*tight, mistral_7b(), 700 << 20);
  EXPECT_EQ(tight->slots, 1);
  EXPECT_EQ(tight->max_model_len, 32'768);
  const auto shorter = size_windows(mistral_7b(), 0, 100 << 20, 16 * kGiB);
  ASSERT_TRUE(shorter);
  expect_sound(*shorter, mistral_7b(), 100 << 20);
  EXPECT_LT(shorter->max_model_len, 1024);
  const auto too_long = size_windows(mistral_7b(), 8192, 100 << 20, 16 * kGiB);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, Code::kOutOfMemory);
  EXPECT_NE(too_long.error().message.find("8192"), std::string::npos);
  EXPECT_FALSE(size_windows(mistral_7b(), 0, 1 << 20, 16 * kGiB));
}

TEST(PoolSize, EveryBudgetIsKeptAndMoreIsNeverWorse) {
  for (const model::KvLayout& layout : {gemma3_270m(), mistral_7b()}) {
    std::int64_t len = 0;
    for (std::int64_t bytes = 1 << 20; bytes < 16 * kGiB; bytes += bytes / 7) {
      const auto made = size_windows(layout, 0, bytes, 16 * kGiB);
      if (!made) {
        EXPECT_EQ(len, 0);
        continue;
      }
      expect_sound(*made, layout, bytes);
      EXPECT_GE(made->max_model_len, len);
      len = made->max_model_len;
    }
    EXPECT_EQ(len, 32'768);
  }
}

class FakeFiles final : public FileSystem {
 public:
  explicit FakeFiles(std::vector<std::pair<std::string, std::string>> files)
      : files_(std::move(files)) {}
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override {
    return fail(Code::kNotFound, "{}", path);
  }
  Result<std::string> read(const std::string& path, std::size_t) const override {
    for (const auto& [name, text] : files_) {
      if (name == path) return text;
    }
    return fail(Code::kNotFound, "{}", path);
  }

 private:
  std::vector<std::pair<std::string, std::string>> files_;
};

TEST(MemoryLimit, TakesTheTightestCgroupAboveTheProcess) {
  const FakeFiles files({
      {"/proc/meminfo", "MemTotal:  100 kB\nMemAvailable:    5000 kB\n"},
      {"/proc/self/cgroup", "0::/pod/app\n"},
      {"/sys/fs/cgroup/pod/app/memory.max", "max\n"},
      {"/sys/fs/cgroup/pod/app/memory.current", "5\n"},
      {"/sys/fs/cgroup/pod/memory.max", "1000000\n"},
      {"/sys/fs/cgroup/pod/memory.current", "400000\n"},
      {"/sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 100000\n"},
  });
  const MemoryLimit limit = memory_limit(files);
  EXPECT_EQ(limit.machine_available, 5000 * 1024);
  EXPECT_EQ(limit.cgroup_limit, 1'000'000);
  EXPECT_EQ(limit.cgroup_left, 700'000);
  EXPECT_EQ(limit.available(), 700'000);
}

TEST(MemoryLimit, ReadsTheOldHierarchyToo) {
  const FakeFiles files({
      {"/proc/meminfo", "MemAvailable:    5000 kB\n"},
      {"/proc/self/cgroup", "5:memory:/docker/x\n1:cpu:/\n"},
      {"/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "5\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n"},
      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n"},
  });
  EXPECT_EQ(memory_limit(files).cgroup_left, 0);
}

TEST(MemoryLimit, KnowsNothingWithoutFiles) {
  EXPECT_EQ(memory_limit(FakeFiles({})).available(), -1);
  EXPECT_GT(memory_limit().available(), 0);  // this machine
}

}  // namespace
}  // namespace artery::engine
