// Every malformed file gets its verdict from `inspect` and from `serve`: exit code 3 and a reason,
// quickly and never by a signal; the odd but valid ones load.

#include <gtest/gtest.h>
#include <signal.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "program.h"

namespace artery::testing_cli {
namespace {
namespace json = boost::json;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSecondsMax = 10;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr double kSecondsMax = 10;
#else
constexpr double kSecondsMax = 2;
#endif
#else
constexpr double kSecondsMax = 2;
#endif

class BadFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = shared_path("golden/models/bad-files");
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "no " << folder_;
    std::ifstream file(folder_ / "manifest.json");
    std::stringstream text;
    text << file.rdbuf();
    manifest_ = json::parse(text.str()).as_object();
  }

  // GGUF files of a list whose verdict is among `verdicts` (the must_load list has none).
  std::vector<std::string> ggufs(const char* list, const std::string& verdicts) const {
    std::vector<std::string> out;
    for (const json::value& item : manifest_.at(list).as_array()) {
      const std::string name(item.at("file").as_string());
      const json::value* verdict = item.as_object().if_contains("verdict");
      const std::string word(verdict == nullptr ? "" : verdict->as_string().c_str());
      if (name.find(".gguf") != std::string::npos &&
          (verdicts.empty() || (" " + verdicts + " ").find(" " + word + " ") != std::string::npos))
        out.push_back((folder_ / name).string());
    }
    EXPECT_FALSE(out.empty());
    return out;
  }

  static void expect_refused(const Outcome& outcome, const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().string();
    EXPECT_EQ(outcome.exit_code, 3) << path << " signal " << outcome.signal << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
    EXPECT_LT(outcome.seconds, kSecondsMax) << path;
  }

  std::filesystem::path folder_;
  json::object manifest_;
};

TEST_F(BadFiles, InspectRefusesWithAReason) {
  for (const std::string& path : ggufs("bad", "refuse refuse_or_read_as_big_endian"))
    expect_refused(run_artery({"inspect", path}), path);
}

TEST_F(BadFiles, ServeRefusesWithAReason) {
  for (const std::string& path : ggufs("bad", "refuse refuse_or_read_as_big_endian"))
    expect_refused(run_artery({"serve", path, "--port", "0"}), path);
}

TEST_F(BadFiles, HarmlessOddityIsRefusedOrWarnedOf) {
  for (const std::string& path : ggufs("bad", "refuse_or_warn")) {
    const Outcome outcome = run_artery({"inspect", path});
    const bool warned =
        outcome.exit_code == 0 && outcome.out.find("warning: ") != std::string::npos;
    EXPECT_TRUE(warned || outcome.exit_code == 3) << path << "\n" << outcome.out << outcome.err;
  }
}

TEST_F(BadFiles, NanWeightsAreFoundOnDemand) {
  const std::string path = (folder_ / "gguf_weights_nan.gguf").string();
  EXPECT_EQ(run_artery({"inspect", path}).exit_code, 0);
  const Outcome checked = run_artery({"inspect", path, "--check-values"});
  EXPECT_EQ(checked.exit_code, 3);
  EXPECT_NE(checked.err.find("blk.0.attn_q.weight"), std::string::npos) << checked.err;
}

TEST_F(BadFiles, OddFilesLoad) {
  for (const std::string& path : ggufs("must_load", "")) {
    const Outcome inspected = run_artery({"inspect", path, "--check-values"});
    EXPECT_EQ(inspected.exit_code, 0) << path << "\n" << inspected.err;
    Server server({path});
    EXPECT_TRUE(server.wait_for("ready ")) << path << "\n" << server.log();
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(30).exit_code, 143) << server.log();
  }
}

TEST_F(BadFiles, OddFilesGiveTheSameGreedyTextEveryTime) {
  const std::string line = R"({"id":"a","tokens":[1,5,9],"greedy":8})";
  for (const std::string& path : ggufs("must_load", "")) {
    const Outcome outcome = run_artery({"eval", path}, line);
    EXPECT_EQ(outcome.exit_code, 0) << path << outcome.err;
    EXPECT_EQ(outcome.out, run_artery({"eval", path, "--chunk", "1"}, line).out) << path;
    EXPECT_NE(outcome.out.find("greedy_tokens"), std::string::npos) << outcome.out;
  }
}

TEST_F(BadFiles, BrokenTemplateLoadsAndChatSaysWhy) {
  const std::string path = (folder_ / "gguf_template_syntax_error.gguf").string();
  EXPECT_EQ(run_artery({"inspect", path}).exit_code, 0);
  Server server({path});
  ASSERT_TRUE(server.wait_for("ready ")) << server.log();
  const std::string chat = server.request(
      "POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}]})"
  );
  EXPECT_EQ(chat.find("HTTP/1.1 200"), std::string::npos) << chat;
  EXPECT_NE(chat.find("template"), std::string::npos) << chat;
  const std::string text =
      server.request("POST", "/v1/completions", R"({"prompt":"a","max_tokens":2})");
  EXPECT_EQ(text.rfind("HTTP/1.1 200", 0), 0u) << text;
}

// FR-F1: bytes written by hand from the GGUF v3 layout.
TEST(HandMadeFiles, AreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"zero_dim",
       "4747554603000000010000000000000000000000000000000100000000000000740200000001000000000000000"
       "0"
       "00000000000000000000000000000000000000"},
      {"n_dims_million",
       "47475546030000000100000000000000000000000000000001000000000000007440420f00"},
      {"align_zero",
       "474755460300000000000000000000000100000000000000110000000000000067656e6572616c2e616c69676e6"
       "d"
       "656e740400000000000000"},
      {"version_99", "474755466300000000000000000000000000000000000000"},
      {"three_bytes", "474755"},
      {"bad_value_type",
       "4747554603000000000000000000000001000000000000000100000000000000784d000000"},
  };
  const TemporaryFolder folder;
  for (const auto& [name, digits] : cases) {
    std::string bytes;
    for (const char* at = digits; *at != 0; at += 2)
      bytes += static_cast<char>(std::stoi(std::string(at, 2), nullptr, 16));
    const std::string path = folder.write(std::string(name) + ".gguf", bytes);
    for (const auto& words :
         {std::vector<std::string>{"inspect", path},
          std::vector<std::string>{"serve", path, "--port", "0"}}) {
      const Outcome outcome = run_artery(words);
      EXPECT_EQ(outcome.exit_code, 3) << name << outcome.err;
      EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
      EXPECT_LT(outcome.seconds, kSecondsMax) << name;
    }
  }
}

// A copy of one of the small checkpoints, to be damaged.
std::string copied_family(const TemporaryFolder& folder, const std::string& family) {
  std::filesystem::copy(ARTERY_SOURCE_DIR "/tests/golden/families/" + family, folder.file(family));
  return folder.file(family);
}

TEST(BadFolders, ATemplateThatDoesNotParseIsRefusedByName) {
  if (run_artery({"--version"}).out.find("with Jinja") == std::string::npos)
    GTEST_SKIP() << "a build without Rust parses no template";
  const TemporaryFolder folder;
  const std::string model = copied_family(folder, "gemma3");
  const std::vector<std::string> serve = {"serve", model, "--port", "0"};
  const auto refused = [&](const std::string& file, const std::string& reason) {
    for (const auto& words : {serve, std::vector<std::string>{"run", model, "-p", "hello"}}) {
      const Outcome outcome = run_artery({words, "", {}, 20});
      EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
      EXPECT_NE(outcome.err.find(model + "/" + file), std::string::npos) << outcome.err;
      EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    }
  };
  folder.write("gemma3/tokenizer_config.json", R"({"chat_template": "{% for m in x %}{{ m }"})");
  refused("tokenizer_config.json", "line 1");
  folder.write("gemma3/chat_template.jinja", "a\n{% if %}");
  refused("chat_template.jinja", "line 2");
  folder.write("gemma3/chat_template.jinja", std::string(5 << 20, 'a'));
  refused("chat_template.jinja", "larger than");
  std::filesystem::remove(model + "/chat_template.jinja");
  std::filesystem::create_directory(model + "/chat_template.jinja");
  refused("chat_template.jinja", "is a directory");
  std::filesystem::remove(model + "/chat_template.jinja");
  folder.write("gemma3/chat_template.jinja", "{% if %}");
  Server other({model, "--chat-template", "chatml"});
  EXPECT_TRUE(other.wait_for("ready ")) << other.log();
}

// A config that asks for another computation than ours must not run as if it did not.
TEST(BadFolders, AnotherLimitOfGptOssIsRefused) {
  const TemporaryFolder folder;
  const std::string model = copied_family(folder, "gpt_oss");
  const std::string path = model + "/config.json";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  json::object config = json::parse(text.str()).as_object();
  for (const auto& [limit, code] : {std::pair{7.0, 0}, {5.0, 3}, {0.0, 3}}) {
    config["swiglu_limit"] = limit;
    folder.write("gpt_oss/config.json", json::serialize(config));
    const Outcome outcome = run_artery({"inspect", model});
    EXPECT_EQ(outcome.exit_code, code) << limit << " " << outcome.err;
    EXPECT_EQ(outcome.err.find("swiglu_limit") != std::string::npos, code != 0) << outcome.err;
  }
}

TEST(BadFolders, AMissingTokenizerIsNamedByEveryVerb) {
  const TemporaryFolder folder;
  const std::string model = copied_family(folder, "gemma3");
  std::filesystem::remove(model + "/tokenizer.json");
  for (const auto& words :
       {std::vector<std::string>{"serve", model, "--port", "0"}, {"tokenize", model}}) {
    const Outcome outcome = run_artery({words, "", {}, 20});
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("/tokenizer.json"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace artery::testing_cli
