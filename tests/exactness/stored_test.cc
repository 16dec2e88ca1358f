// The matrix of the cache: wherever a prompt's KV comes from, the answer is the one computed alone,
// tokens and log probabilities bit for bit. {computed, from RAM, from the store after a restart,
// from the store after RAM lost it, without its windows, from a damaged store} x batch x drafts x
// chunk, over a store in memory and over one on the disk.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "eager_store.h"
#include "kvstore/store.h"
#include "load.h"
#include "subjects.h"
#include "testing/mem_record_store.h"
#include "testing/tiny_model.h"

namespace artery::exactness {
namespace {

enum class From { kCold, kRam, kRestart, kEvicted, kWindowGone, kDamaged };
constexpr From kAll[] = {
    From::kCold, From::kRam, From::kRestart, From::kEvicted, From::kWindowGone, From::kDamaged
};
const char* name(From from) {
  constexpr const char* kNames[] = {
      "cold", "RAM", "disk after restart", "disk after RAM eviction", "window gone", "damaged"
  };
  return kNames[static_cast<std::size_t>(from)];
}
bool is_of_store(From from) {
  return from == From::kRestart || from == From::kEvicted || from == From::kDamaged;
}

struct Cell {
  From from = From::kCold;
  std::size_t batch = 1;
  int drafts = 0;
  int chunk = 512;
};

std::vector<Cell> all_cells() {
  std::vector<Cell> out;
  for (const From from : kAll) {
    for (const std::size_t batch : {1u, 7u, 32u}) {
      for (const int drafts : {0, 4}) {
        for (const int chunk : {64, 512}) out.push_back({from, batch, drafts, chunk});
      }
    }
  }
  return out;
}

// A store that survives its engines.
class Shelf {
 public:
  virtual ~Shelf() = default;
  virtual std::shared_ptr<kvstore::RecordStore> store() = 0;
  // What was offered can be found.
  virtual void settle() = 0;
  virtual void restart() = 0;
  // Every third record or so, after a restart.
  virtual void damage() = 0;
};

class MemShelf final : public Shelf {
 public:
  std::shared_ptr<kvstore::RecordStore> store() override { return store_; }
  void settle() override {}
  void restart() override {}
  void damage() override {
    int count = 0;
    for (const auto& record : store_->records()) {
      if (count++ % 3 == 1) store_->damage(record.facts.key);
    }
  }

 private:
  std::shared_ptr<testing::MemRecordStore> store_ = std::make_shared<testing::MemRecordStore>();
};

class DiskShelf final : public Shelf {
 public:
  explicit DiskShelf(std::int64_t record_bytes_max) : record_bytes_max_(record_bytes_max) {
    static int count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("artery-exactness-{}-{}", ::getpid(), count++);
    std::filesystem::remove_all(folder_);
  }
  ~DiskShelf() override {
    store_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::shared_ptr<kvstore::RecordStore> store() override {
    if (store_ == nullptr) open();
    return std::make_shared<EagerStore>(store_);
  }
  void settle() override {
    if (store_ == nullptr) return;
    const auto done = store_->flush();
    EXPECT_TRUE(done) << done.error().message;
  }
  void restart() override { store_.reset(); }
  // Bits of headers, token ids and payloads alike.
  void damage() override {
    store_.reset();
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (!entry.path().filename().string().starts_with("seg-")) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const auto size = static_cast<std::int64_t>(entry.file_size());
      for (std::int64_t at = 4096 + 97; at < size; at += 5 * 4096 + 613) {
        file.seekg(at);
        const auto byte = static_cast<char>(file.get() ^ 0x10);
        file.seekp(at);
        file.put(byte);
      }
    }
  }

 private:
  void open() {
    kvstore::StoreConfig config;
    config.folder = folder_.string();
    config.bytes_max = std::int64_t{256} << 20;
    config.record_bytes_max = record_bytes_max_;
    config.buffer_bytes = 16 << 20;
    config.write_queue_s = 600;
    auto opened = kvstore::DiskStore::open(config, system_file_system(), system_clock());
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
  }

  const std::int64_t record_bytes_max_;
  std::filesystem::path folder_;
  std::shared_ptr<kvstore::DiskStore> store_;
};

class Stored : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto found = find_subject(GetParam());
    if (!found) {
      GTEST_SKIP() << found.error().message;
    }
    subject_ = *found;
    const auto engine = subject_->start({}, 4);
    windowed_ = engine->status().window_pages_total > 0;
    // All layers have windows: pages of no bytes are not stored, only windows are.
    has_pages_ = GetParam() != "mistral";
  }
  bool dear() const { return GetParam() == kSmolLM2; }
  // Of the cells, every so many; coprime to the length of each axis.
  std::size_t stride(std::size_t usual) const {
    if (run_long_tests()) return 1;
    return dear() ? 11 : sanitizer_build() ? 7 : usual;
  }

  // Long questions first, so that a batch of one has something to find; those that bypass the cache
  // (prompt log probabilities) are among them.
  Load load_of(const Cell& cell) const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < subject_->questions().size(); ++i) {
      const bool is_short = subject_->questions()[i].prompt.size() <= 130;
      if (!dear() || run_long_tests() || is_short) order.push_back(i);
    }
    std::ranges::sort(order, std::ranges::greater{}, [&](std::size_t i) {
      const engine::Request& each = subject_->questions()[i];
      const std::size_t length = each.prompt_logprobs >= 0 ? 0 : each.prompt.size();
      return std::pair(length, order.size() - i);
    });
    Load load;
    load.setting.cache = true;
    load.setting.drafts = cell.drafts;
    load.setting.chunk = cell.chunk;
    for (std::size_t i = 0; i < cell.batch; ++i) {
      load.members.push_back({.question = order[i % order.size()]});
    }
    return load;
  }
  std::vector<std::vector<TokenId>> prompts_of(const Load& load) const {
    std::vector<std::vector<TokenId>> out;
    for (const Member& member : load.members) {
      const auto& prompt = subject_->questions()[member.question].prompt;
      if (std::ranges::find(out, prompt) == out.end()) out.push_back(prompt);
    }
    return out;
  }

  void expect_cell(const Cell& cell, Shelf& shelf, bool windows_in_store) {
    Load load = load_of(cell);
    load.setting.windows_in_store = windows_in_store;
    load.settle = [&] { shelf.settle(); };
    if (cell.from == From::kRestart || cell.from == From::kDamaged) {
      Load life = load;
      life.members.clear();
      life.before = prompts_of(load);
      life.setting.pages = pages_of_all(*subject_, life);
      life.setting.store = shelf.store();
      run(*subject_, life);
      life.setting.store.reset();
      shelf.restart();
      if (cell.from == From::kDamaged) shelf.damage();
    } else if (cell.from != From::kCold) {
      load.before = prompts_of(load);
    }
    // Room for windows beside those of running sequences.
    if (!has_pages_) load.setting.pages = pages_of_all(*subject_, load) + 64;
    load.reset = cell.from == From::kEvicted;
    if (cell.from == From::kWindowGone) load.setting.window_ttl_s = 1e-9;
    load.setting.store = shelf.store();
    const Outcome outcome = run(*subject_, load);
    const std::string where = fmt::format(
        "{}, {}, batch {}, {}", GetParam(), name(cell.from), cell.batch, describe(load.setting)
    );
    for (const std::string& text : outcome.differences) ADD_FAILURE() << where << ": " << text;
    expect_source(cell.from, outcome.status, has_pages_ || windows_in_store, where);
  }

  // That the cell tests what it says.
  void expect_source(From from, const engine::Status& status, bool stores, const std::string& where)
      const {
    if (from == From::kCold) {
      EXPECT_EQ(status.hit_tokens_disk, 0) << where;
    } else if (from == From::kRestart || from == From::kEvicted) {
      EXPECT_EQ(status.loads > 0, stores) << where;
      // A disk that others keep busy may be too slow.
      if (status.loads_whole > 0) {
        EXPECT_GT(status.hit_tokens_disk, 0) << where;
      }
    } else if (from == From::kRam) {
      EXPECT_GT(status.hit_tokens_ram, 0) << where;
    } else if (from == From::kWindowGone && windowed_) {
      EXPECT_GT(status.windows_rebuilt, 0) << where;
    }
  }

  Subject* subject_ = nullptr;
  bool windowed_ = false;
  bool has_pages_ = true;
};

TEST_P(Stored, EveryCellSaysTheSame) {
  const std::vector<Cell> cells = all_cells();
  for (std::size_t i = 0; i < cells.size() && !HasFailure(); i += stride(1)) {
    if (cells[i].from == From::kWindowGone && !windowed_) continue;
    MemShelf shelf;
    expect_cell(cells[i], shelf, false);
  }
}

TEST_P(Stored, EveryCellSaysTheSameWithWindowsInTheStore) {
  if (!windowed_) GTEST_SKIP() << "a model without windows";
  const std::vector<Cell> cells = all_cells();
  for (std::size_t i = 0; i < cells.size() && !HasFailure(); i += stride(5)) {
    MemShelf shelf;
    expect_cell(cells[i], shelf, true);
  }
}

TEST_P(Stored, TheDiskSaysTheSame) {
  std::vector<Cell> cells = all_cells();
  std::erase_if(cells, [](const Cell& cell) { return !is_of_store(cell.from); });
  for (std::size_t i = 0; i < cells.size() && !HasFailure(); i += stride(7)) {
    DiskShelf shelf(dear() ? 4 << 20 : 256 << 10);
    expect_cell(cells[i], shelf, windowed_ && i % 2 == 0);
  }
}

// FR-I3: files of the same weights, each quantized otherwise, share a folder and nothing in it.
TEST(StoredSpaces, AnotherQuantizationOfTheSameWeightsIsNeverHit) {
  using tensor::DType;
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const DType type : {DType::kF32, DType::kQ8_0, DType::kQ4_0}) {
    testing::TinyModelOptions options;
    options.weight_type = type;  // the same seed: the same values before they are rounded
    auto made = Subject::tiny(options, tensor::KvType::kI16);
    ASSERT_TRUE(made) << made.error().message;
    (*made)->make_questions({129}, 12);
    subjects.push_back(std::move(*made));
  }
  DiskShelf shelf(256 << 10);
  for (const bool is_first : {true, false}) {
    for (const auto& subject : subjects) {
      Load load;
      load.setting.cache = true;
      load.setting.store = shelf.store();
      load.members = {{.question = 0}};
      const Outcome outcome = run(*subject, load);
      const std::string where = fmt::format("{} {}", subject->info().weights_digest, is_first);
      for (const std::string& text : outcome.differences) ADD_FAILURE() << where << ": " << text;
      EXPECT_EQ(outcome.status.hit_tokens_ram, 0) << where;
      EXPECT_EQ(outcome.status.hit_tokens_disk, is_first ? 0 : 128) << where;
      shelf.settle();
      load.setting.store.reset();
      shelf.restart();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Exactness,
    Stored,
    ::testing::Values("llama_q4_1", "gemma3", "gpt_oss", "mistral", kSmolLM2),
    [](const auto& named) { return std::string(named.param); }
);

}  // namespace
}  // namespace artery::exactness
