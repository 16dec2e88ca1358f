// What others do to a store's folder while it is open, on real files: deleted, renamed, replaced,
// emptied, single segments gone; and what a reader learns of its writer's drops.

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/mutex.h"
#include "kvstore/store_testing.h"

namespace artery::kvstore {
namespace {

using store_testing::Prompt;
namespace fs = std::filesystem;

bool wait_until(const std::function<bool()>& is_so) {
  for (int i = 0; i < 3000 && !is_so(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return is_so();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class FolderWatchTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(base_.path()); }
  std::string folder() const { return base_.file("kv"); }
  StoreConfig config() const {
    StoreConfig out = store_testing::small_config(folder());
    out.io = StoreConfig::Io::kThreads;
    return out;
  }
  void open_and_fill(int prompts = 3) {
    store_ = store_testing::open_store(config());
    ASSERT_NE(store_, nullptr);
    space_ = store_->open_space(store_testing::spec_of());
    for (int i = 0; i < prompts; ++i) {
      prompts_.push_back(std::make_unique<Prompt>(*store_, i, 12));
      ASSERT_EQ(store_testing::offer_all(*store_, space_, *prompts_.back()).refused, 0);
    }
    ASSERT_TRUE(store_->flush());
  }
  Health health() const { return store_->status().health; }
  std::string trouble() const { return store_->status().trouble; }
  bool is_sick_of(std::string_view text) {
    return wait_until([&] { return health() == Health::kSick && has(trouble(), text); });
  }
  // Nothing is found, loaded or taken, and nothing fails.
  void expect_out_of_service() {
    for (const auto& prompt : prompts_) {
      const Found found = store_->find(space_, prompt->keys);
      EXPECT_EQ(found.pages, 0);
      EXPECT_EQ(found.miss, MissReason::kBudget);
    }
    const Prompt other(*store_, 99, 12);
    const auto offered =
        store_testing::offer_all(*store_, space_, other, TtlClass::kHour, 0, false);
    EXPECT_EQ(offered.taken, 0);
    const auto flushed = store_->flush();
    ASSERT_FALSE(flushed);
    EXPECT_EQ(flushed.error().code, Code::kUnavailable);
  }
  static std::map<std::string, std::string> contents(const std::string& folder) {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      out[entry.path().string()] = std::string(std::istreambuf_iterator<char>(in), {});
    }
    return out;
  }

  store_testing::TempFolder base_;
  std::unique_ptr<DiskStore> store_;
  SpaceId space_ = 0;
  std::vector<std::unique_ptr<Prompt>> prompts_;
};

TEST_F(FolderWatchTest, ADeletedFolderIsToldAndNotMadeAgain) {
  open_and_fill();
  fs::remove_all(folder());
  ASSERT_TRUE(is_sick_of("the folder is gone (deleted, renamed")) << trouble();
  expect_out_of_service();
  store_ = nullptr;
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(FolderWatchTest, AFolderThatComesBackIsUsedAgain) {
  open_and_fill();
  fs::rename(folder(), base_.file("elsewhere"));
  ASSERT_TRUE(is_sick_of("the folder is gone")) << trouble();
  expect_out_of_service();
  fs::rename(base_.file("elsewhere"), folder());
  ASSERT_TRUE(wait_until([&] { return health() == Health::kOk; })) << trouble();
  EXPECT_EQ(trouble(), "");
  for (const auto& prompt : prompts_) store_testing::expect_whole(*store_, space_, *prompt);
  const Prompt later(*store_, 50, 12);
  EXPECT_EQ(store_testing::offer_all(*store_, space_, later).refused, 0);
  ASSERT_TRUE(store_->flush());
  // The first has it still.
  const auto second = DiskStore::open(config(), system_file_system(), system_clock());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST_F(FolderWatchTest, AnotherStoreInItsPlaceIsNeverTouched) {
  open_and_fill();
  fs::rename(folder(), base_.file("elsewhere"));
  // Another server makes a new store at the same path, with segments of the same numbers.
  {
    auto other = store_testing::open_store(config());
    ASSERT_NE(other, nullptr);
    const SpaceId space = other->open_space(store_testing::spec_of());
    for (int i = 0; i < 3; ++i) {
      const Prompt prompt(*other, 70 + i, 12);
      ASSERT_EQ(store_testing::offer_all(*other, space, prompt).refused, 0);
    }
    ASSERT_TRUE(other->flush());
    ASSERT_TRUE(is_sick_of("another folder stands there")) << trouble();
  }
  const auto before = contents(folder());
  expect_out_of_service();
  EXPECT_FALSE(store_->drop_tenant(""));
  EXPECT_FALSE(store_->collect());
  store_ = nullptr;
  EXPECT_EQ(contents(folder()), before);
}

TEST_F(FolderWatchTest, AnEmptiedFolderIsGoneToo) {
  open_and_fill();
  for (const auto& entry : fs::directory_iterator(folder())) fs::remove_all(entry.path());
  ASSERT_TRUE(is_sick_of("what was in it was deleted")) << trouble();
  expect_out_of_service();
  store_ = nullptr;
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(FolderWatchTest, WritesUnderWayWhileItGoesFailNobody) {
  open_and_fill();
  fs::rename(folder(), base_.file("elsewhere"));
  // As fast as it takes them, until it is out of service: some find it gone before the watch does.
  int seed = 200;
  ASSERT_TRUE(wait_until([&] {
    const Prompt prompt(*store_, seed++, 12);
    store_testing::offer_all(*store_, space_, prompt, TtlClass::kChat, 0, false);
    return health() == Health::kSick && has(trouble(), "the folder is gone");
  })) << trouble();
  EXPECT_FALSE(fs::exists(folder()));
  fs::rename(base_.file("elsewhere"), folder());
  EXPECT_TRUE(wait_until([&] { return health() == Health::kOk; })) << trouble();
}

TEST_F(FolderWatchTest, ADeletedSegmentCostsItsRecordsOnly) {
  open_and_fill(12);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("seg-")) names.push_back(name);
  }
  std::ranges::sort(names);
  ASSERT_GE(names.size(), 3u);
  const std::int64_t segments = store_->status().segments;
  fs::remove(folder() + "/" + names.front());
  ASSERT_TRUE(wait_until([&] { return store_->status().segments_lost == 1; }));
  EXPECT_TRUE(has(trouble(), names.front() + ": it was deleted")) << trouble();
  EXPECT_EQ(health(), Health::kOk);
  EXPECT_TRUE(wait_until([&] { return store_->status().segments == segments - 1; }));
  int whole = 0, evicted = 0;
  for (const auto& prompt : prompts_) {
    const Found found = store_->find(space_, prompt->keys);
    const auto loaded = store_testing::load_found(*store_, space_, *prompt, found);
    EXPECT_EQ(loaded.wrong, 0);
    EXPECT_EQ(loaded.why, MissReason::kNone);
    whole += found.miss == MissReason::kNone;
    evicted += found.miss == MissReason::kEvicted;
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(evicted, 0);
  EXPECT_EQ(whole + evicted, 12);
  // The rest is there after a restart, and the journal has forgotten the lost one.
  store_ = nullptr;
  store_ = store_testing::open_store(config());
  EXPECT_EQ(store_->status().segments_lost, 0);
}

TEST_F(FolderWatchTest, AReaderOfADeletedFolderStopsToo) {
  open_and_fill();
  StoreConfig reading = config();
  reading.read_only = true;
  auto reader = store_testing::open_store(reading);
  const SpaceId space = reader->open_space(store_testing::spec_of());
  store_testing::expect_whole(*reader, space, *prompts_[0]);
  fs::rename(folder(), base_.file("elsewhere"));
  ASSERT_TRUE(wait_until([&] { return reader->status().health == Health::kSick; }));
  EXPECT_EQ(reader->find(space, prompts_[0]->keys).pages, 0);
  fs::rename(base_.file("elsewhere"), folder());
  ASSERT_TRUE(wait_until([&] { return reader->status().health == Health::kReadOnly; }));
  store_testing::expect_whole(*reader, space, *prompts_[0]);
}

class DroppedTenantTest : public FolderWatchTest, public ::testing::WithParamInterface<bool> {
 protected:
  StoreConfig keyed() const {
    StoreConfig out = config();
    out.encrypt = GetParam();
    if (out.encrypt) out.encryption_key_file = base_.file("key");
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(, DroppedTenantTest, ::testing::Bool(), [](const auto& one) {
  return one.param ? "Encrypted" : "Plain";
});

TEST_P(DroppedTenantTest, AReaderStopsServingWhatItsWriterDropped) {
  std::ofstream(base_.file("key"), std::ios::binary) << std::string(32, 'k');
  store_ = store_testing::open_store(keyed());
  for (const char* tenant : {"ann", "ben"}) {
    const Prompt prompt(*store_, 1, 12, tenant);
    const SpaceId space = store_->open_space(store_testing::spec_of(tenant));
    ASSERT_EQ(store_testing::offer_all(*store_, space, prompt).refused, 0);
  }
  ASSERT_TRUE(store_->flush());
  StoreConfig reading = keyed();
  reading.read_only = true;
  auto reader = store_testing::open_store(reading);
  Mutex mutex;
  std::vector<std::string> erased;
  reader->set_on_erased([&](const std::string& tenant) {
    const MutexLock lock(mutex);
    erased.push_back(tenant);
  });
  const Prompt ann(*reader, 1, 12, "ann"), ben(*reader, 1, 12, "ben");
  const SpaceId of_ann = reader->open_space(store_testing::spec_of("ann"));
  const SpaceId of_ben = reader->open_space(store_testing::spec_of("ben"));
  store_testing::expect_whole(*reader, of_ann, ann);
  ASSERT_TRUE(store_->drop_tenant("ann"));
  ASSERT_TRUE(wait_until([&] {
    const MutexLock lock(mutex);
    return !erased.empty();
  }));
  EXPECT_EQ(reader->find(of_ann, ann.keys).pages, 0);
  EXPECT_EQ(reader->find(of_ann, ann.keys).miss, MissReason::kTenant);
  store_testing::expect_whole(*reader, of_ben, ben);
  for (const std::string& tenant : erased) EXPECT_EQ(tenant, "ann");
  reader->set_on_erased({});
}

TEST_P(DroppedTenantTest, CopiesAreToldOfADrop) {
  std::ofstream(base_.file("key"), std::ios::binary) << std::string(32, 'k');
  store_ = store_testing::open_store(keyed());
  const Prompt prompt(*store_, 1, 12, "ann");
  const SpaceId space = store_->open_space(store_testing::spec_of("ann"));
  ASSERT_EQ(store_testing::offer_all(*store_, space, prompt).refused, 0);
  ASSERT_TRUE(store_->flush());
  std::vector<std::int64_t> pages;
  store_->set_on_erased([&](const std::string& tenant) {
    EXPECT_EQ(tenant, "ann");
    pages.push_back(store_->find(space, prompt.keys).pages);
  });
  ASSERT_TRUE(store_->drop_tenant("ann"));
  // Before, so that nothing of the copies is written again, and after.
  EXPECT_EQ(pages, (std::vector<std::int64_t>{12, 0}));
  store_->set_on_erased({});
  ASSERT_TRUE(store_->drop_tenant("ann"));
  EXPECT_EQ(pages.size(), 2u);
}

}  // namespace
}  // namespace artery::kvstore
