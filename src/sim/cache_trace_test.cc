#include "sim/cache_trace.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <map>

#include "sim/line_source.h"

namespace artery::sim {
namespace {

class OneFile : public FileSystem {
 public:
  explicit OneFile(std::string text) : text_(std::move(text)) {}
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override {
    return fail(Code::kUnsupported, "{}: not mapped", path);
  }
  Result<std::string> read(const std::string& path, std::size_t) const override {
    if (path != "trace") return fail(Code::kNotFound, "{}: does not exist", path);
    return text_;
  }

 private:
  std::string text_;
};

std::string packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

Result<CacheTrace> read(const std::string& text, std::uint64_t seed = 1) {
  return read_cache_trace("trace", OneFile(text), seed);
}

constexpr char kSessions[] =
    R"({"session":"one","block_size":64,"scope":"local"}
{"s":"one","a":0,"t":0.0,"in":300,"out":5,"h":[[1,3],[4,1]]}
{"s":"one","a":1,"t":7.5,"in":400,"out":5,"h":[[1,2],[9,4]]}

{"session":"two","block_size":64}
{"s":"two","t":1,"in":64,"out":5,"h":[[1,1]]}
)";

TEST(CacheTraceTest, ReadsSessionsWithTheirRuns) {
  for (const std::string& text : {std::string(kSessions), packed(kSessions)}) {
    const Result<CacheTrace> trace = read(text);
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(trace->format, "claude-code");
    EXPECT_EQ(trace->block_tokens, 64);
    EXPECT_TRUE(trace->is_agents);
    ASSERT_EQ(trace->requests.size(), 3U);
    std::map<std::uint32_t, std::vector<const CacheRequest*>> by_root;
    for (const CacheRequest& request : trace->requests) by_root[request.root].push_back(&request);
    ASSERT_EQ(by_root.size(), 2U);
    const std::vector<const CacheRequest*>& one = by_root.at(1);
    EXPECT_EQ(one[0]->blocks, 4);
    ASSERT_EQ(one[0]->runs.size(), 1U);  // [1, 3] and [4, 1] are one
    EXPECT_EQ(one[1]->runs.size(), 2U);
    EXPECT_EQ(one[1]->input_tokens, 400);
    EXPECT_DOUBLE_EQ(one[1]->time_s - one[0]->time_s, 7.5);
    EXPECT_LT(one[0]->time_s, 86'400);
  }
  // The same seed, the same starts; another one, others.
  EXPECT_EQ(read(kSessions, 5)->requests[0].time_s, read(kSessions, 5)->requests[0].time_s);
  EXPECT_NE(read(kSessions, 5)->requests[0].time_s, read(kSessions, 6)->requests[0].time_s);
}

TEST(CacheTraceTest, SpreadsBinsAndOnlyBins) {
  const std::string binned =
      R"({"timestamp": 3000, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [0, 7]}
{"timestamp": 3000, "input_length": 0, "output_length": 0, "hash_ids": []})";
  const Result<CacheTrace> trace = read(binned);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->format, "mooncake");
  EXPECT_LT(trace->requests[0].time_s, 3);
  EXPECT_EQ(trace->requests[0].input_tokens, 513);
  EXPECT_GE(trace->requests[1].time_s, 3);
  EXPECT_NE(trace->requests[1].time_s, trace->requests[2].time_s);
  const Result<CacheTrace> exact = read(
      binned + "\n" +
      R"({"timestamp": 3001, "input_length": 1, "output_length": 0, "hash_ids": [4]})"
  );
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->requests[0].time_s, 0);
  EXPECT_EQ(exact->requests[3].time_s, 3.001);
}

TEST(CacheTraceTest, ReadsHashesAsText) {
  const Result<CacheTrace> trace =
      read(R"({"ts": 56, "il": 2100, "ol": 0, "bh": ["292848572250575933", "-5"]})");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->format, "rtp-llm");
  EXPECT_EQ(trace->block_tokens, 1024);
  EXPECT_EQ(trace->requests[0].blocks, 2);
}

TEST(CacheTraceTest, NamesTheLineThatIsWrong) {
  const std::string good =
      R"({"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]})";
  const std::string bad[] = {
      "{",
      "[]",
      "nothing",
      R"({"timestamp": 0, "input_length": 1000, "hash_ids": [0]})",
      R"({"timestamp": -1, "input_length": 1000, "output_length": 5, "hash_ids": [0]})",
      R"({"timestamp": 0, "input_length": 1e300, "output_length": 5, "hash_ids": [0]})",
      R"({"timestamp": 0, "input_length": "a", "output_length": 5, "hash_ids": [0]})",
      R"({"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0, 1]})",
      R"({"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [-1]})",
      R"({"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": 1})",
  };
  for (const std::string& line : bad) {
    const Result<CacheTrace> trace = read(good + "\n" + line + "\n" + good);
    ASSERT_FALSE(trace) << line;
    EXPECT_EQ(trace.error().code, Code::kBadFile);
    EXPECT_TRUE(trace.error().message.starts_with("trace, line 2: ")) << trace.error().message;
  }
  const std::string sessions = kSessions;
  for (const std::string& line :
       {std::string(R"({"s":"three","t":1,"in":64,"out":5,"h":[]})"),
        std::string(R"({"s":"one","t":1,"in":64,"out":5,"h":[[1,2]]})"),
        std::string(R"({"s":"one","t":1,"in":64,"out":5,"h":[[1,99999999999999]]})"),
        std::string(R"({"s":"one","t":1,"in":64,"out":5,"h":[[1]]})"),
        std::string(R"({"session":"one","block_size":64})"),
        std::string(R"({"session":"four","block_size":32})")}) {
    const Result<CacheTrace> trace = read(sessions + line);
    ASSERT_FALSE(trace) << line;
    EXPECT_TRUE(trace.error().message.starts_with("trace, line 7: ")) << trace.error().message;
  }
}

TEST(CacheTraceTest, RefusesWhatIsNoTrace) {
  EXPECT_EQ(read("{\"a\": 1}").error().code, Code::kUnsupported);
  EXPECT_EQ(read("").error().code, Code::kBadFile);
  EXPECT_EQ(read("\n\n").error().code, Code::kBadFile);
  std::string cut = packed(kSessions);
  cut.resize(cut.size() - 5);
  EXPECT_EQ(read(cut).error().code, Code::kBadFile);
  std::string wrong = packed(kSessions);
  wrong[wrong.size() / 2] = static_cast<char>(wrong[wrong.size() / 2] ^ 0x55);
  wrong[6] = static_cast<char>(wrong[6] ^ 0xFF);
  EXPECT_FALSE(read(wrong));
  EXPECT_EQ(read_cache_trace("other", OneFile(""), 1).error().code, Code::kNotFound);
}

TEST(LineSourceTest, GivesLinesHoweverLong) {
  std::string text;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < 40; ++i) {
    lines.push_back(std::string(i % 7 == 0 ? 3'000'000 : 10, static_cast<char>('a' + i % 26)));
    text += lines.back() + (i % 2 == 0 ? "\r\n" : "\n\n");
  }
  text.pop_back();  // the last line ends with the file
  for (const std::string& file : {text, packed(text), packed(text) + packed("\nmore")}) {
    Result<LineSource> source = LineSource::open("trace", OneFile(file));
    ASSERT_TRUE(source);
    std::size_t count = 0;
    for (;; ++count) {
      const auto line = source->next();
      ASSERT_TRUE(line) << line.error().message;
      if (!*line) break;
      if (count < lines.size()) {
        ASSERT_EQ(**line, lines[count]);
      }
    }
    EXPECT_GE(count, lines.size());
    EXPECT_LE(count, lines.size() + 1);
    EXPECT_EQ(source->bytes_done(), source->bytes());
  }
}

}  // namespace
}  // namespace artery::sim
