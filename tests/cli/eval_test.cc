// `eval`: the bits of its logits do not depend on how the work was cut.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "base/npy.h"
#include "program.h"

namespace artery::testing_cli {
namespace {
namespace json = boost::json;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Eval : public testing::Test {
 protected:
  void SetUp() override {
    model_ = model_path("stories260K.gguf");
    if (model_.empty()) GTEST_SKIP() << "no stories260K.gguf: scripts/fetch-model stories260k";
    std::uint32_t state = 7;
    for (int c = 0; c < kCases; ++c) {
      json::array tokens;
      // Later cases start like earlier ones, so that a cache has something to find.
      std::uint32_t draw = c % 2 == 0 ? state : state + 1;
      const int length = 1 + c * 17;
      for (int i = 0; i < length; ++i) {
        if (i == 40) draw += static_cast<std::uint32_t>(c);
        draw = draw * 1664525u + 1013904223u;
        tokens.emplace_back(3 + (draw >> 16) % 500);
      }
      json::object line = {{"id", "c" + std::to_string(c)}, {"tokens", tokens}, {"greedy", 5}};
      if (c % 3 == 0) line["rows"] = "all";
      if (c % 3 == 1) line["rows"] = json::array{0, length - 1};
      if (c % 2 == 1) line["force"] = json::array{11, 12, 13};
      input_ += json::serialize(line) + "\n";
    }
  }

  struct Result {
    std::string lines;
    std::vector<std::string> files;
  };
  Result run(std::vector<std::string> flags, const std::string& input) const {
    const TemporaryFolder folder;
    flags.insert(flags.begin(), {"eval", model_, "--output", folder.file("out")});
    const Outcome outcome = run_artery(flags, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    Result result{outcome.out, {}};
    for (int c = 0; c < kCases; ++c)
      result.files.push_back(bytes_of(folder.file("out/c" + std::to_string(c) + ".npy")));
    return result;
  }
  static void expect_equal(const Result& a, const Result& b, const std::string& what) {
    EXPECT_EQ(a.lines, b.lines) << what;
    for (std::size_t c = 0; c < a.files.size(); ++c) {
      EXPECT_GT(a.files[c].size(), 128u) << what << " case " << c;
      EXPECT_TRUE(a.files[c] == b.files[c]) << what << ": the bits of case " << c << " differ";
    }
  }

  static constexpr int kCases = 9;
  std::string model_, input_;
};

TEST_F(Eval, BitsDoNotDependOnBatchChunkThreadsOrCache) {
  for (const std::string numerics : {"fast", "reference"}) {
    const Result plain = run({"--numerics", numerics, "--threads", "1"}, input_);
    const std::vector<std::vector<std::string>> ways = {
        {"--batch", "4", "--chunk", "17", "--threads", "2"},
        {"--batch", "9", "--chunk", "1", "--threads", "3"},
        {"--cache", "ram", "--threads", "2"},
        {"--cache", "ram", "--batch", "3", "--chunk", "64"},
    };
    for (std::vector<std::string> flags : ways) {
      std::string what = numerics;
      for (const std::string& flag : flags) what += " " + flag;
      flags.insert(flags.end(), {"--numerics", numerics});
      expect_equal(plain, run(flags, input_), what);
    }
  }
}

TEST_F(Eval, BitsDoNotDependOnAHit) {
  const Result plain = run({}, input_);
  std::string with_hits;
  std::istringstream lines(input_);
  for (std::string line; std::getline(lines, line);) {
    json::object item = json::parse(line).as_object();
    const auto count = static_cast<std::int64_t>(item.at("tokens").as_array().size());
    item["hit"] = count > 40 ? 40 : count;
    with_hits += json::serialize(item) + "\n";
  }
  expect_equal(plain, run({"--chunk", "33", "--batch", "2"}, with_hits), "hit");
}

TEST_F(Eval, ShapesRowsAndErrors) {
  const std::string input = R"({"id":"c0","tokens":[1,2,3],"rows":"all","greedy":2})"
                            "\n"
                            R"({"id":"c1","tokens":[1,2,3],"force":[4,5]})"
                            "\n"
                            R"({"id":"c2","tokens":[1,2,999999]})"
                            "\n"
                            R"({"id":"../x","tokens":[1]})"
                            "\n"
                            R"({"id":"c4","tokens":[1,2],"rows":[2]})"
                            "\n"
                            R"({"id":"c5","tokens":[]})"
                            "\n";
  const TemporaryFolder folder;
  const Outcome outcome =
      run_artery({"eval", model_, "--output", folder.file("o"), "--batch", "3"}, input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<json::object> lines;
  std::istringstream text(outcome.out);
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line).as_object());
  ASSERT_EQ(lines.size(), 6u) << outcome.out;
  EXPECT_EQ(lines[0].at("rows"), (json::array{0, 1, 2}));
  EXPECT_EQ(lines[0].at("greedy_tokens").as_array().size(), 2u);
  EXPECT_EQ(lines[0].at("margins").as_array().size(), 2u);
  EXPECT_EQ(lines[1].at("rows"), (json::array{2, 3, 4}));
  EXPECT_EQ(lines[2].at("error").at("param"), "tokens");
  EXPECT_EQ(lines[3].at("error").at("param"), "id");
  EXPECT_EQ(lines[4].at("error").at("param"), "rows");
  EXPECT_EQ(lines[5].at("error").at("param"), "tokens");
  const auto npy = NpyArray::read(system_file_system(), folder.file("o/c0.npy"));
  ASSERT_TRUE(npy.has_value()) << npy.error().message;
  EXPECT_EQ(npy->type(), NpyType::kFloat32);
  EXPECT_EQ(npy->shape(), (std::vector<std::int64_t>{3, 512}));
}

TEST_F(Eval, GreedyStoryIsTheKnownOne) {
  const auto prompts = shared_path("golden/models/stories260k/prompts.json");
  if (!std::filesystem::exists(prompts)) GTEST_SKIP() << "no " << prompts;
  const json::value all = json::parse(bytes_of(prompts.string()));
  std::string input;
  std::vector<std::pair<json::array, std::int64_t>> expected;
  for (const json::value& prompt : all.at("prompts").as_array()) {
    input += json::serialize(json::object{
                 {"id", prompt.at("name")}, {"tokens", prompt.at("ids")}, {"greedy", 48}
             }) +
             "\n";
    expected.emplace_back(
        prompt.at("greedy").at("tokens").as_array(),
        prompt.at("greedy").at("robust_prefix").as_int64()
    );
  }
  const Outcome outcome = run_artery({"eval", model_, "--batch", "4"}, input);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream text(outcome.out);
  std::int64_t compared = 0;
  for (const auto& [tokens, robust] : expected) {
    std::string line;
    ASSERT_TRUE(std::getline(text, line));
    const json::value answer = json::parse(line);
    for (std::size_t i = 0; i < static_cast<std::size_t>(robust); ++i, ++compared)
      EXPECT_EQ(answer.at("greedy_tokens").at(i), tokens[i]) << line;
  }
  EXPECT_GT(compared, 0);
}

// The second run finds what the first left, and its bits are those of none.
TEST_F(Eval, BitsDoNotDependOnAStore) {
  const Result plain = run({}, input_);
  const TemporaryFolder folder;
  for (const char* batch : {"1", "4"})
    expect_equal(plain, run({"--cache", folder.file("kv"), "--batch", batch}, input_), batch);
  const Outcome outcome =
      run_artery({"eval", model_, "--cache", folder.file("kv"), "--chunk", "17"}, input_);
  EXPECT_EQ(outcome.out, plain.lines);
  EXPECT_EQ(outcome.err.find(": 0 tokens came from there"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(" tokens came from there"), std::string::npos) << outcome.err;
}

// Sliding windows of 16 in six of seven layers.
class EvalOfWindows : public testing::Test {
 protected:
  void SetUp() override {
    json::array tokens = {2};
    for (int i = 0; i < 200; ++i) tokens.emplace_back(3 + i * i % 247);
    input_ = json::serialize(json::object{{"id", "a"}, {"tokens", tokens}, {"greedy", 8}}) + "\n";
  }
  json::object compare(const std::string& ways) const {
    const Outcome outcome = run_artery({"eval", model_, "--compare", ways, "--json"}, input_);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out).as_object();
  }

  const std::string model_ = ARTERY_SOURCE_DIR "/tests/golden/families/gemma3";
  std::string input_;
};

TEST_F(EvalOfWindows, ExactIsColdAndReplayIsNot) {
  const json::object exact = compare("exact,cold");
  EXPECT_EQ(exact.at("kl").at("max").to_number<double>(), 0);
  EXPECT_EQ(exact.at("top1_agreement").to_number<double>(), 1);
  EXPECT_EQ(exact.at("greedy_agreement").to_number<double>(), 1);
  EXPECT_EQ(exact.at("hits").as_int64(), 2);
  EXPECT_EQ(exact.at("rows").as_int64(), 105 + 9);
  const json::object replay = compare("exact,replay:16");
  EXPECT_GT(replay.at("kl").at("max").to_number<double>(), 1e-6);
  EXPECT_EQ(replay.at("rows_before"), (json::array{96 + 96, 16 + 16}));
  // Six layers look 15 positions back each: 90 rows and no fewer are exact.
  EXPECT_EQ(compare("cold,replay:90").at("kl").at("max").to_number<double>(), 0);
  EXPECT_GT(compare("cold,replay:64").at("kl").at("max").to_number<double>(), 0);
}

TEST_F(EvalOfWindows, AStoreGivesTheSameBitsAndReplaysHaveTheirOwn) {
  const std::string plain = run_artery({"eval", model_}, input_).out;
  const TemporaryFolder folder;
  const auto with_store = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", model_, "--cache", folder.file("kv")});
    return run_artery(more, input_);
  };
  EXPECT_EQ(with_store({}).out, plain);
  const Outcome second = with_store({});
  EXPECT_EQ(second.out, plain);
  EXPECT_NE(second.err.find(": 192 tokens came from there"), std::string::npos) << second.err;
  const Outcome replay = with_store({"--swa-replay", "16"});
  EXPECT_EQ(replay.out, plain);  // nothing of the exact runs is found
  EXPECT_NE(replay.err.find(": 0 tokens came from there"), std::string::npos) << replay.err;
  const Outcome again = with_store({"--swa-replay", "16"});
  EXPECT_NE(again.err.find(": 192 tokens came from there"), std::string::npos) << again.err;
  EXPECT_NE(again.out, plain);
}

TEST(EvalFlags, WrongOnesAreExplained) {
  const std::string gemma = ARTERY_SOURCE_DIR "/tests/golden/families/gemma3";
  const auto error = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "eval");
    const Outcome outcome = run_artery(flags, R"({"tokens":[1,2,3]})");
    EXPECT_NE(outcome.exit_code, 0);
    return outcome.err;
  };
  EXPECT_NE(error({gemma, "--compare", "exact,warm"}).find("exact,replay"), std::string::npos);
  EXPECT_NE(error({gemma, "--compare", "exact,cold"}).find("whole pages"), std::string::npos);
  EXPECT_NE(error({gemma, "--cache", "rma"}).find("./rma"), std::string::npos);
  const std::string mistral = ARTERY_SOURCE_DIR "/tests/golden/families/mistral";
  EXPECT_NE(error({mistral, "--cache", "/tmp/"}).find("--cache ram"), std::string::npos);
}

// Also those with a window in every layer, so with no entry in the global group.
TEST(EvalOfFolders, EveryFamilyRuns) {
  const TemporaryFolder folder;
  for (const auto& family :
       std::filesystem::directory_iterator(ARTERY_SOURCE_DIR "/tests/golden/families")) {
    if (!family.is_directory()) continue;
    const Outcome outcome = run_artery(
        {"eval", family.path().string(), "--output", folder.file("out")},
        R"({"id":"a","tokens":[1,2,3],"rows":"last","greedy":3})"
    );
    EXPECT_EQ(outcome.exit_code, 0) << family.path() << " " << outcome.err;
    EXPECT_NE(outcome.out.find("\"greedy_tokens\":["), std::string::npos) << outcome.out;
  }
}

}  // namespace
}  // namespace artery::testing_cli
