// `serve` as a process: ports, signals, exit codes, start-up lines.

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "program.h"

namespace artery::testing_cli {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Serve : public testing::Test {
 protected:
  void SetUp() override {
    model_ = model_path("stories260K.gguf");
    if (model_.empty()) GTEST_SKIP() << "no stories260K.gguf: scripts/fetch-model stories260k";
  }
  std::string model_;
};

// FR-L3
TEST_F(Serve, TakenPortIsSaidBeforeTheModelLoads) {
  Server first({model_});
  ASSERT_TRUE(first.wait_for("ready ")) << first.log();
  const std::string port = std::to_string(first.port());
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    const Outcome second =
        run_artery({"serve", "/nonexistent.gguf", "--insecure", "--host", host, "--port", port});
    EXPECT_EQ(second.exit_code, 1) << second.err;
    EXPECT_LT(second.seconds, 5);
    EXPECT_TRUE(contains(second.err, port) && contains(second.err, "--port")) << second.err;
    EXPECT_FALSE(contains(second.err, "nonexistent.gguf")) << second.err;
  }
  EXPECT_TRUE(contains(first.request("GET", "/health"), "200")) << "the first one is unaffected";
}

TEST_F(Serve, StartUpSaysContextAndThreads) {
  Server server({model_, "--threads", "1"});
  ASSERT_TRUE(server.wait_for("ready ")) << server.log();
  EXPECT_GT(server.port(), 0);
  EXPECT_TRUE(contains(server.log(), "context 512 of 512; ")) << server.log();
  EXPECT_TRUE(contains(server.log(), "threads=1")) << server.log();
  EXPECT_TRUE(contains(server.log(), "isa=")) << server.log();
  const std::string models = server.request("GET", "/v1/models");
  EXPECT_TRUE(contains(models, "stories260K")) << models;
  EXPECT_TRUE(contains(models, "512")) << models;
}

TEST_F(Serve, PortIsToldAtEveryLogLevel) {
  Server server({model_, "--log-level", "error"});
  ASSERT_TRUE(server.wait_for("listening on ")) << server.log();
  EXPECT_GT(server.port(), 0);
}

TEST_F(Serve, FileThatGetsShorterDuringTheLoadIsBad) {
  const std::string original = model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
  if (original.empty()) GTEST_SKIP() << "no SmolLM2: stories260K loads before anyone can cut it";
  const TemporaryFolder folder;
  const std::string copy = folder.file("cut.gguf");
  std::filesystem::copy_file(original, copy);
  Server server({copy});
  ASSERT_TRUE(server.wait_for("listening on ")) << server.log();
  std::filesystem::resize_file(copy, 2'000'000);
  const Outcome outcome = server.wait(20);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "artery: error: ")) << outcome.err;
}

TEST_F(Serve, StopsCleanlyOnSignals) {
  for (const auto& [number, code] : {std::pair{SIGTERM, 143}, std::pair{SIGINT, 130}}) {
    Server server({model_});
    ASSERT_TRUE(server.wait_for("ready ")) << server.log();
    server.signal(number);
    const Outcome outcome = server.wait(20);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "stopped")) << outcome.err;
  }
}

TEST_F(Serve, ContextBeyondTheModelIsRefused) {
  const Outcome outcome = run_artery({"serve", model_, "--port", "0", "-c", "4096"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "--max-model-len") && contains(outcome.err, "512"))
      << outcome.err;
}

TEST_F(Serve, PoolTooSmallForTheContextIsExitCode4) {
  const Outcome outcome =
      run_artery({"serve", model_, "--port", "0", "-c", "512", "--kv-cache-memory-bytes", "16K"});
  EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "--max-model-len")) << outcome.err;
  const Outcome nothing =
      run_artery({"serve", model_, "--port", "0", "--kv-cache-memory-bytes", "1"});
  EXPECT_EQ(nothing.exit_code, 4) << nothing.err;
  EXPECT_FALSE(contains(nothing.err, "--max-model-len")) << "no length fits\n" << nothing.err;
}

TEST_F(Serve, BeyondLoopbackNeedsAKey) {
  const Outcome outcome = run_artery({"serve", model_, "--host", "0.0.0.0", "--port", "0"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "--insecure")) << outcome.err;
}

TEST_F(Serve, ChatTemplateFileThatIsMissingStopsTheStart) {
  const Outcome outcome =
      run_artery({"serve", model_, "--port", "0", "--chat-template", "/nonexistent/a.jinja"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "/nonexistent/a.jinja")) << outcome.err;
}

TEST_F(Serve, MoreThreadsThanCpusIsWarnedOf) {
  Server server({model_, "--threads", "512"});
  ASSERT_TRUE(server.wait_for("ready ")) << server.log();
  EXPECT_TRUE(contains(server.log(), "--threads 512 exceeds")) << server.log();
}

// One shot, from the prompt flag and from standard input.
TEST_F(Serve, RunContinuesTextOnce) {
  const Outcome flag = run_artery(
      {"run", model_, "--raw", "-p", "Once upon a time", "--temp", "0", "--max-tokens", "20"}
  );
  EXPECT_EQ(flag.exit_code, 0) << flag.err;
  EXPECT_TRUE(contains(flag.out, "there was a little girl named Lily")) << flag.out;
  EXPECT_TRUE(contains(flag.err, "tokens/s")) << flag.err;
  const Outcome piped =
      run_artery({"run", model_, "--raw", "--temp", "0", "--max-tokens", "20"}, "Once upon a time");
  EXPECT_EQ(piped.out, flag.out);
  const Outcome chat = run_artery({"run", model_, "-p", "Hi"});
  EXPECT_EQ(chat.exit_code, 3) << "no chat template in this file";
  EXPECT_TRUE(contains(chat.err, "--raw")) << chat.err;
}

}  // namespace
}  // namespace artery::testing_cli
