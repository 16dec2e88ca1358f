// Help, version, exit codes, and where a flag's value comes from.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "program.h"

namespace artery::testing_cli {
namespace {

const std::vector<std::vector<std::string>>& verbs() {
  static const std::vector<std::vector<std::string>> all = {
      {"serve"},
      {"run"},
      {"run-batch"},
      {"bench", "model"},
      {"bench", "serve"},
      {"bench", "tokenizer"},
      {"doctor"},
      {"inspect"},
      {"tokenize"},
      {"detokenize"},
      {"template"},
      {"eval"},
      {"kv", "verify"},
      {"kv", "gc"},
      {"kv", "drop-tenant"},
  };
  return all;
}

std::vector<std::string> with(std::vector<std::string> words, const std::string& last) {
  words.push_back(last);
  return words;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Usage, EveryVerbHelpsWithAnExample) {
  for (const auto& verb : verbs()) {
    const Outcome help = run_artery(with(verb, "--help"));
    EXPECT_EQ(help.exit_code, 0) << verb[0];
    EXPECT_TRUE(contains(help.out, "Example:")) << help.out;
    EXPECT_TRUE(contains(help.out, "artery " + verb[0])) << help.out;
    EXPECT_TRUE(help.err.empty()) << help.err;
  }
}

TEST(Usage, GroupsHelpWithExamplesOfTheirOwnAndKnowTheirVerbs) {
  for (const std::string group : {"kv", "bench", "simulate"}) {
    const Outcome help = run_artery({group, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_TRUE(contains(help.out, "Example:\n  artery " + group + " ")) << help.out;
    EXPECT_FALSE(contains(help.out, "artery serve")) << help.out;
    const Outcome unknown = run_artery({group, "frobnicate", "here"});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_TRUE(contains(unknown.err, "unknown: frobnicate; there are: ")) << unknown.err;
  }
  EXPECT_TRUE(contains(run_artery({"kv", "x"}).err, "verify gc drop-tenant"));
  EXPECT_TRUE(contains(run_artery({"frobnicate"}).err, "there are: serve run"));
}

TEST(Usage, HelpIsFreeOfTheParsersOwnNotation) {
  const Outcome help = run_artery({"serve", "--help"});
  EXPECT_TRUE(contains(help.out, "--kv-store,--no-kv-store ")) << help.out;
  EXPECT_FALSE(contains(help.out, "{false}")) << help.out;
}

TEST(Usage, InspectGivesTheBytesOfATokenThatDoctorPlansWith) {
  const std::string model = ARTERY_SOURCE_DIR "/tests/golden/families/gemma3";
  const Outcome doctor = run_artery({"doctor", model, "--json"});
  const Outcome inspect = run_artery({"inspect", model, "--json"});
  const std::string name = "\"kv_bytes_per_token\":";
  const std::size_t at = doctor.out.find(name);
  ASSERT_NE(at, std::string::npos) << doctor.out << doctor.err;
  const std::string field = doctor.out.substr(at, doctor.out.find_first_of(",}", at) - at);
  EXPECT_TRUE(contains(inspect.out, field)) << field << inspect.out.substr(0, 300) << inspect.err;
  EXPECT_TRUE(contains(run_artery({"inspect", model}).out, "kv bytes per token"));
}

TEST(Usage, ACapacityOfLessThanARecordIsAForgottenPercentSign) {
  const TemporaryFolder folder;
  const std::string trace = folder.write(
      "trace.jsonl",
      R"({"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[0]})"
      "\n"
  );
  const Outcome refused = run_artery({"simulate", "cache", "--trace", trace, "--capacity", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "--capacity")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "less than a record")) << refused.err;
  const Outcome taken =
      run_artery({"simulate", "cache", "--trace", trace, "--capacity", "100M", "--json"});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
}

TEST(Usage, EveryVerbShowsTheVersionInOneLine) {
  const Outcome plain = run_artery({"--version"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_EQ(plain.out.find('\n'), plain.out.size() - 1);
  for (const char* part : {"artery 0.", "commit ", "isa ", "numerics fast-"})
    EXPECT_TRUE(contains(plain.out, part)) << plain.out;
  for (const auto& verb : verbs()) EXPECT_EQ(run_artery(with(verb, "--version")).out, plain.out);
}

TEST(Usage, WrongUsageIsExitCode2AndNamesTheFlag) {
  struct Case {
    std::vector<std::string> arguments;
    std::string names;
  };
  const Case cases[] = {
      {{}, "serve"},
      {{"frobnicate"}, "frobnicate"},
      {{"serve", "m.gguf", "--frobnicate"}, "--frobnicate"},
      {{"serve"}, "MODEL"},
      {{"serve", "m.gguf", "--port", "65536"}, "--port"},
      {{"serve", "m.gguf", "--port", "eighty"}, "--port"},
      {{"serve", "m.gguf", "--numerics", "sloppy"}, "fast|reference"},
      {{"serve", "m.gguf", "-ngl", "99"}, "--gpu-layers"},
      {{"bench", "model", "m.gguf", "-p", "1,x"}, "-p"},
      {{"template"}, "--template"},
      {{"bench"}, "bench"},
      {{"kv"}, "kv"},
      {{"kv", "verify"}, "DIR"},
  };
  for (const Case& wrong : cases) {
    const Outcome outcome = run_artery(wrong.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << wrong.names << "\n" << outcome.err;
    EXPECT_TRUE(contains(outcome.err, wrong.names)) << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  }
}

TEST(Usage, MissingFilesAreExitCode1) {
  for (const char* verb : {"inspect", "tokenize", "detokenize", "eval", "run", "serve"}) {
    std::vector<std::string> words = {verb, "/nonexistent/m.gguf"};
    if (words[0] == "serve") words.insert(words.end(), {"--port", "0"});
    const Outcome outcome = run_artery(words);
    EXPECT_EQ(outcome.exit_code, 1) << verb << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "/nonexistent/m.gguf")) << outcome.err;
  }
}

TEST(Usage, PipesAreRefusedInsteadOfWaitedFor) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe.gguf");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Outcome outcome = run_artery({"inspect", pipe});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, pipe)) << outcome.err;
}

TEST(Usage, OutputThatIsLostIsNoSuccess) {
  const std::string command = ARTERY_BUILD_DIR "/artery doctor --print-config 2> /dev/null > ";
  EXPECT_EQ(std::system((command + "/dev/null").c_str()), 0);
  EXPECT_NE(std::system((command + "/dev/full").c_str()), 0);
}

TEST(Usage, UnexpectedArgumentsStandAsTheyWereTyped) {
  const Outcome outcome = run_artery({"serve", "model.gguf", "--prot", "9000"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome.err, "not expected: --prot 9000")) << outcome.err;
}

TEST(Usage, AFileMayHaveTheNameOfAVerb) {
  for (const char* name : {"kv", "bench", "serve"}) {
    const Outcome outcome = run_artery({"inspect", name});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(contains(outcome.err, "no such file")) << outcome.err;
  }
}

TEST(Usage, AMisspeltTemplateNameIsNoTemplate) {
  const Outcome outcome = run_artery({"template", "--template", "chatmll"});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_TRUE(contains(outcome.err, "chatml, llama2, llama3, mistral")) << outcome.err;
}

TEST(Usage, FoldersSayWhatIsMissing) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  const Outcome outcome = run_artery({"inspect", folder.file("")});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_TRUE(contains(outcome.err, "config.json: model_type is missing")) << outcome.err;
  std::ifstream config(ARTERY_SOURCE_DIR "/tests/golden/families/qwen3/config.json");
  folder.write("config.json", std::string(std::istreambuf_iterator<char>(config), {}));
  const Outcome no_weights = run_artery({"inspect", folder.file("")});
  EXPECT_EQ(no_weights.exit_code, 3);
  EXPECT_TRUE(contains(no_weights.err, "safetensors")) << no_weights.err;
}

std::string effective(const Invocation& invocation, const std::string& key) {
  const Outcome outcome = run_artery(invocation);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(key + " = ", 0) == 0) return line.substr(key.size() + 3);
  ADD_FAILURE() << key << " not in\n" << outcome.out;
  return "";
}

TEST(Config, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.toml", "port = 3\nmax_model_len = 30\n");
  Invocation call{.arguments = {"serve", "--print-config"}, .input = "", .environment = {}};
  EXPECT_EQ(effective(call, "port"), "8000");
  call.arguments.insert(call.arguments.end(), {"--config", file});
  EXPECT_EQ(effective(call, "port"), "3");
  EXPECT_EQ(effective(call, "max_model_len"), "30");
  call.environment["ARTERY_PORT"] = "2";
  EXPECT_EQ(effective(call, "port"), "2");
  call.arguments.insert(call.arguments.end(), {"--port", "1"});
  EXPECT_EQ(effective(call, "port"), "1");
  EXPECT_EQ(effective(call, "max_model_len"), "30");
}

TEST(Config, UnderscoresAndLlamaCppSpellingsAreTheSameFlags) {
  const auto value = [](std::vector<std::string> words, const std::string& key) {
    words.insert(words.begin(), {"serve", "--print-config"});
    return effective({.arguments = words, .input = "", .environment = {}}, key);
  };
  EXPECT_EQ(value({"--max_model_len", "77"}, "max_model_len"), "77");
  EXPECT_EQ(value({"--max_model_len=78"}, "max_model_len"), "78");
  EXPECT_EQ(value({"-c", "79"}, "max_model_len"), "79");
  EXPECT_EQ(value({"-np", "5"}, "max_num_seqs"), "5");
  EXPECT_EQ(value({"-t", "3"}, "threads"), "3");
  EXPECT_EQ(value({"-m", "x.gguf"}, "model"), "\"x.gguf\"");
  EXPECT_EQ(value({"y.gguf", "-ngl", "0"}, "model"), "\"y.gguf\"");
  EXPECT_EQ(value({"--no-enable-prefix-caching"}, "enable_prefix_caching"), "false");
  EXPECT_EQ(value({"--no_enable_prefix_caching"}, "enable_prefix_caching"), "false");
}

TEST(Config, NegatedSwitchInTheEnvironment) {
  Invocation call{.arguments = {"serve", "--print-config"}, .input = "", .environment = {}};
  call.environment["ARTERY_NO_ENABLE_PREFIX_CACHING"] = "1";
  EXPECT_EQ(effective(call, "enable_prefix_caching"), "false");
}

TEST(Config, ErrorsNameTheSource) {
  const TemporaryFolder folder;
  const auto serve_with = [&](const std::string& content) {
    const std::string file = folder.write("b.toml", content);
    return run_artery({"serve", "--print-config", "--config", file});
  };
  const Outcome unknown = serve_with("porrt = 1\n");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "porrt")) << unknown.err;
  const Outcome broken = serve_with("port = 1\nhost = \n");
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_TRUE(contains(broken.err, "line 2")) << broken.err;
  const Outcome wrong = serve_with("port = \"http\"\n");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(contains(wrong.err, "--config file")) << wrong.err;
  const Outcome nested = serve_with("[serve]\nport = 1\n");
  EXPECT_EQ(nested.exit_code, 2);
  const Outcome other_verb = serve_with("temp = 0.5\n");  // run's; one file serves all verbs
  EXPECT_EQ(other_verb.exit_code, 0) << other_verb.err;
}

TEST(Config, KeysAreNotPrinted) {
  const Outcome outcome = run_artery({"serve", "--print-config", "--api-key", "sesame"});
  EXPECT_FALSE(contains(outcome.out, "sesame"));
}

TEST(Config, DefaultFileIsWhatTheProgramPrints) {
  std::ifstream file(ARTERY_SOURCE_DIR "/configs/serve.default.toml");
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_EQ(run_artery({"serve", "--print-config"}).out, content.str())
      << "artery serve --print-config > configs/serve.default.toml";
}

TEST(Config, PrintedConfigurationReadsBack) {
  const TemporaryFolder folder;
  const Outcome first =
      run_artery({"serve", "--print-config", "--port", "9", "--served-model-name", "a \"b\" \\"});
  const std::string file = folder.write("c.toml", first.out);
  EXPECT_EQ(run_artery({"serve", "--print-config", "--config", file}).out, first.out);
}

TEST(Doctor, DescribesTheMachine) {
  const Outcome table = run_artery({"doctor"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  for (const char* row : {"cores", "quota", "isa", "memory bandwidth", "io_uring", "slow"})
    EXPECT_TRUE(contains(table.out, row)) << row << "\n" << table.out;
  const Outcome lines = run_artery({"doctor", "--json"});
  EXPECT_EQ(lines.out.front(), '{');
  EXPECT_TRUE(contains(lines.out, "\"threads\":")) << lines.out;
}

}  // namespace
}  // namespace artery::testing_cli
