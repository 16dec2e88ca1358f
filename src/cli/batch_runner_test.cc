// A batch on a scripted engine: more lines than the engine takes at once.

#include "cli/batch_runner.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "server/fake_engine_test.h"
#include "server/test_client.h"

namespace artery::cli {
namespace {

constexpr TokenId kEnd = 257;

class BatchRunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/artery-batch-XXXXXX";
    folder_ = mkdtemp(name);
    engine_ = std::make_shared<server::FakeEngine>(300, 512);
    engine_->set_author([](const engine::Request&, int) {
      return server::FakeEngine::Script{server::byte_ids("yes"), kEnd, {}};
    });
    set_log_level(LogLevel::kOff);
    auto opened = server::OfflineApi::open(server::Config());
    ASSERT_TRUE(opened) << opened.error().message;
    api_ = opened.take();
    auto tokenizer = codec::Tokenizer::make(server::byte_vocab(false, {}));
    ASSERT_TRUE(tokenizer);
    server::Serving serving;
    serving.engine = engine_;
    serving.tokenizer = tokenizer.take();
    serving.model_name = "tiny";
    api_->attach(std::move(serving));
  }
  void TearDown() override {
    if (api_) api_->stop();
    std::filesystem::remove_all(folder_);
  }
  std::string write(const std::string& text) const {
    const std::string path = folder_ + "/in.jsonl";
    std::ofstream(path) << text;
    return path;
  }
  // The counts of a whole batch.
  BatchCounts run(const std::string& lines, int requests_max) {
    auto source = LineSource::open(write(lines), 1 << 20);
    auto output = BatchOutput::open(folder_ + "/out.jsonl", true);
    auto signals = SignalWatch::open();
    EXPECT_TRUE(source && output && signals);
    BatchRunner runner(*api_, *source, *output, *signals, requests_max);
    std::int64_t most = 0;
    const auto ended = runner.run([&](const BatchCounts&) {
      most = std::max<std::int64_t>(most, engine_->status().running);
    });
    EXPECT_TRUE(ended && !*ended);
    most_ = most;
    return runner.counts();
  }

  std::string folder_;
  std::shared_ptr<server::FakeEngine> engine_;
  std::unique_ptr<server::OfflineApi> api_;
  std::int64_t most_ = 0;  // running at once, as seen in turns
};

std::string lines_of(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += fmt::format(
        R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"prompt":"x"}}}})"
        "\n",
        i
    );
  }
  return out;
}

TEST_F(BatchRunnerTest, AFullEngineIsAskedAgain) {
  engine_->set_inbox_max(2);
  engine_->set_step_ms(1);
  const BatchCounts counts = run(lines_of(40), 16);
  EXPECT_EQ(counts.answered, 40);
  EXPECT_EQ(counts.failed, 0);
  EXPECT_GT(engine_->status().rejected, 0) << "the test means nothing when it never was full";
}

TEST_F(BatchRunnerTest, NoMoreAtOnceThanAskedFor) {
  engine_->set_step_ms(2);
  const BatchCounts counts = run(lines_of(30), 3);
  EXPECT_EQ(counts.answered, 30);
  EXPECT_LE(most_, 3);
}

TEST_F(BatchRunnerTest, AnEngineThatFailsIsAnAnswer) {
  engine_->set_author([](const engine::Request&, int) {
    return server::FakeEngine::Script{{}, -1, "broken"};
  });
  const BatchCounts counts = run(lines_of(3), 3);
  EXPECT_EQ(counts.failed, 3);
}

}  // namespace
}  // namespace artery::cli
