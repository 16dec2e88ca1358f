// Data sets, readers of recorded workloads, texts of exact length.

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "bench/datasets.h"
#include "bench/sharegpt_reader.h"
#include "bench/text_maker.h"
#include "bench/trace_reader.h"

namespace artery::bench {
namespace {

// One token a word, plus one for a start of sequence.
class WordCounter final : public TokenCounter {
 public:
  Result<std::int64_t> count(std::string_view text) override {
    ++calls;
    std::int64_t words = 1;
    for (std::size_t i = 0; i < text.size(); ++i)
      words += text[i] != ' ' && (i == 0 || text[i - 1] == ' ') ? 1 : 0;
    return words;
  }
  int calls = 0;
};

// One token a byte: words have different costs, as with a vocabulary without merges.
class ByteCounter final : public TokenCounter {
 public:
  Result<std::int64_t> count(std::string_view text) override {
    return static_cast<std::int64_t>(text.size());
  }
};

class BrokenCounter final : public TokenCounter {
 public:
  Result<std::int64_t> count(std::string_view) override { return fail(Code::kIo, "gone"); }
};

TEST(TextMaker, MeetsEveryLengthWithAnyCounter) {
  WordCounter by_word;
  ByteCounter by_byte;
  for (TokenCounter* counter :
       {static_cast<TokenCounter*>(&by_word), static_cast<TokenCounter*>(&by_byte)}) {
    auto maker = TextMaker::make(counter);
    ASSERT_TRUE(maker.has_value()) << maker.error().message;
    Dice dice(1);
    for (std::int64_t tokens = 6; tokens < 300; ++tokens) {
      const auto made = maker->make_text(tokens, dice);
      ASSERT_TRUE(made.has_value());
      EXPECT_EQ(made->tokens, tokens);
      EXPECT_EQ(*counter->count(made->text), tokens) << made->text;
    }
  }
}

TEST(TextMaker, SameBlocksMakeTheSamePrefix) {
  ByteCounter counter;
  auto maker = TextMaker::make(&counter);
  ASSERT_TRUE(maker.has_value());
  Dice dice(7);
  const std::vector<std::string> shared = {maker->block(1, 64), maker->block(2, 64)};
  EXPECT_NE(shared[0], shared[1]);
  EXPECT_EQ(maker->block(1, 64), shared[0]);
  auto longer = shared;
  longer.push_back(maker->block(3, 64));
  const auto a = maker->join(longer, 190, dice);
  auto other = shared;
  other.push_back(maker->block(4, 64));
  const auto b = maker->join(other, 180, dice);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->tokens, 190);
  EXPECT_EQ(b->tokens, 180);
  std::size_t same = 0;
  while (same < a->text.size() && a->text[same] == b->text[same]) ++same;
  EXPECT_GE(same, shared[0].size() + shared[1].size());
  EXPECT_LT(same, 160u);
}

TEST(TextMaker, PassesOnWhatTheCounterSays) {
  BrokenCounter counter;
  EXPECT_EQ(TextMaker::make(&counter).error().message, "gone");
  auto without = TextMaker::make(nullptr);
  ASSERT_TRUE(without.has_value());
  Dice dice(1);
  EXPECT_EQ(without->make_text(20, dice)->tokens, 20);
}

TEST(Arrivals, HaveTheRateAndShapeAskedFor) {
  const auto arrivals = [](double rate, double burstiness) {
    std::vector<WorkRequest> requests(2000);
    Dice dice(3);
    set_arrivals(requests, rate, burstiness, dice);
    return requests;
  };
  const auto deviation_of_gaps = [](const std::vector<WorkRequest>& requests) {
    double sum = 0, squares = 0, before = 0;
    for (const WorkRequest& request : requests) {
      const double gap = request.arrival_s - before;
      EXPECT_GE(gap, 0);
      before = request.arrival_s;
      sum += gap;
      squares += gap * gap;
    }
    const double count = static_cast<double>(requests.size()), mean = sum / count;
    return std::sqrt(std::max(squares / count - mean * mean, 0.0)) / mean;
  };
  EXPECT_NEAR(arrivals(10, 1).back().arrival_s, 200, 1e-6);
  EXPECT_NEAR(deviation_of_gaps(arrivals(10, 1)), 1, 0.1);
  EXPECT_NEAR(deviation_of_gaps(arrivals(10, 0.25)), 2, 0.3);
  EXPECT_NEAR(deviation_of_gaps(arrivals(10, INFINITY)), 0, 1e-6);
  EXPECT_EQ(arrivals(INFINITY, 1).back().arrival_s, 0);
}

Result<Workload> make(DatasetConfig config, TokenCounter* counter) {
  TextMaker maker = TRY(TextMaker::make(counter));
  return make_workload(config, maker, counter, [](std::int64_t, std::int64_t) {});
}

TEST(Datasets, RandomKeepsLengthsSeedAndPrefix) {
  WordCounter counter;
  DatasetConfig config;
  config.num_prompts = 50;
  config.random_input_len = 100;
  config.random_output_len = 20;
  const auto fixed = make(config, &counter);
  ASSERT_TRUE(fixed.has_value());
  std::set<std::string> different;
  for (const WorkRequest& request : fixed->requests) {
    EXPECT_EQ(request.input_tokens, 100);
    EXPECT_EQ(request.output_tokens, 20);
    different.insert(request.prompt);
  }
  EXPECT_EQ(different.size(), 50u);
  EXPECT_EQ(make(config, &counter)->requests[9].prompt, fixed->requests[9].prompt);
  config.seed = 1;
  EXPECT_NE(make(config, &counter)->requests[9].prompt, fixed->requests[9].prompt);
  config.random_range_ratio = 0.5;
  config.random_prefix_len = 60;
  const auto varied = make(config, &counter);
  std::set<std::int64_t> lengths;
  for (const WorkRequest& request : varied->requests) {
    EXPECT_GE(request.input_tokens, 110);
    EXPECT_LE(request.input_tokens, 210);
    lengths.insert(request.input_tokens);
    EXPECT_EQ(request.prompt.substr(0, 150), varied->requests[0].prompt.substr(0, 150));
  }
  EXPECT_GT(lengths.size(), 20u);
}

TEST(Datasets, ShareGptLikeLengthsAreWithinTheirLimits) {
  WordCounter counter;
  DatasetConfig config;
  config.name = "sharegpt";
  config.num_prompts = 300;
  const auto work = make(config, &counter);
  ASSERT_TRUE(work.has_value());
  double input = 0;
  for (const WorkRequest& request : work->requests) {
    EXPECT_GE(request.input_tokens, 4);
    EXPECT_LE(request.input_tokens, 1024);
    input += static_cast<double>(request.input_tokens);
  }
  EXPECT_NEAR(input / 300, 150, 40);
}

TEST(ShareGpt, ReadsTheFirstTwoTurns) {
  const auto talks = read_sharegpt(
      R"([{"id":"a","conversations":[{"from":"human","value":"Hi [\"}"},{"from":"gpt","value":"Yo"}]},
          {"id":"one turn","conversations":[{"from":"human","value":"x"}]},
          {"conversations":[]}, 7, "text",
          {"items":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}])",
      10
  );
  ASSERT_TRUE(talks.has_value()) << talks.error().message;
  ASSERT_EQ(talks->size(), 2u);
  EXPECT_EQ((*talks)[0].prompt, "Hi [\"}");
  EXPECT_EQ((*talks)[0].answer, "Yo");
  EXPECT_EQ((*talks)[1].prompt, "Q");
}

TEST(ShareGpt, SaysWhatIsWrong) {
  for (const char* text :
       {"",
        "{}",
        "[",
        "[]",
        "[{\"conversations\":",
        "[{]}]",
        "[{\"a\":1}]",
        "["
        "{\"conversations\":[{\"value\":\"a\"},{\"value\":\"b\"}]},{\"x\""}) {
    const auto talks = read_sharegpt(text, 10);
    ASSERT_FALSE(talks.has_value()) << text;
    EXPECT_EQ(talks.error().code, Code::kBadFile);
  }
}

TEST(Traces, EveryFormatIsTold) {
  const auto mooncake = read_trace(
      "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [0, 9]}\n"
      "{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 7, \"hash_ids\": [0, 1, 2]}\n"
      "{\"timestamp\": 0, \"input_length\": 10, \"output_length\": 0, \"hash_ids\": []}\n",
      10
  );
  ASSERT_TRUE(mooncake.has_value()) << mooncake.error().message;
  EXPECT_EQ(mooncake->format, "mooncake");
  EXPECT_EQ(mooncake->block_tokens, 512);
  ASSERT_EQ(mooncake->rows.size(), 3u);
  EXPECT_EQ(mooncake->rows[0].blocks, (std::vector<std::uint64_t>{0, 1}));  // 513 tokens: 2 blocks
  EXPECT_EQ(mooncake->rows[1].output_tokens, 1);
  EXPECT_NEAR(mooncake->rows[1].time_s, 1.5, 1e-9);  // spread over its bin
  EXPECT_NEAR(mooncake->rows[2].time_s, 3, 1e-9);
  const auto rtp = read_trace(R"({"ts": 56, "il": 2100, "ol": 3, "bh": ["77", "78"]})", 10);
  ASSERT_TRUE(rtp.has_value());
  EXPECT_EQ(rtp->format, "rtp-llm");
  EXPECT_EQ(rtp->rows[0].blocks.size(), 2u);
  const auto claude = read_trace(
      "{\"session\":\"a\",\"block_size\":64}\n"
      "{\"s\":\"a\",\"t\":0,\"in\":200,\"out\":9,\"h\":[[1,3],[9,1]]}\n"
      "{\"session\":\"b\",\"block_size\":64}\n"
      "{\"s\":\"b\",\"t\":2.5,\"in\":130,\"out\":9,\"h\":[[1,1e9]]}\n",
      10
  );
  ASSERT_TRUE(claude.has_value()) << claude.error().message;
  EXPECT_EQ(claude->block_tokens, 64);
  EXPECT_EQ(claude->rows[0].blocks.size(), 4u);
  EXPECT_EQ(claude->rows[1].blocks.size(), 3u);  // a claimed run of a billion is not believed
  EXPECT_NE(claude->rows[0].blocks[0], claude->rows[1].blocks[0]);  // ids are a session's own
  EXPECT_NEAR(claude->rows[1].time_s, 32.5, 1e-9);
  const auto azure = read_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.5000000,4808,10\r\n"
      "2023-11-17 00:00:01.2500000,3180,8\r\n",
      10
  );
  ASSERT_TRUE(azure.has_value()) << azure.error().message;
  EXPECT_NEAR(azure->rows[1].time_s, 1.75, 1e-6);
  const auto vidur = read_trace(
      "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n", 10
  );
  ASSERT_TRUE(vidur.has_value());
  EXPECT_FALSE(vidur->timed);
  const auto arrivals = read_trace("# comment\n# columns\n71\t2101\n3106\t5961\n", 1);
  ASSERT_TRUE(arrivals.has_value());
  ASSERT_EQ(arrivals->rows.size(), 1u);
  EXPECT_EQ(arrivals->rows[0].input_tokens, 2101);
}

TEST(Traces, SayWhichLineIsBad) {
  const auto cut = read_trace("{\"ts\": 1, \"il\": 2, \"ol\": 3}\n\n{\"ts\": 1, \"il\"", 10);
  ASSERT_FALSE(cut.has_value());
  EXPECT_EQ(cut.error().code, Code::kBadFile);
  EXPECT_NE(cut.error().message.find("line 3"), std::string::npos) << cut.error().message;
  EXPECT_EQ(read_trace("", 1).error().code, Code::kBadFile);
  EXPECT_EQ(read_trace("\n \n", 1).error().code, Code::kBadFile);
  EXPECT_EQ(read_trace("hello", 1).error().code, Code::kUnsupported);
  EXPECT_EQ(read_trace("{\"a\":1}", 1).error().code, Code::kUnsupported);
  const auto missing = read_trace("{\"ts\": 1, \"il\": 2}", 1);
  EXPECT_NE(missing.error().message.find("\"ol\" is missing"), std::string::npos);
  EXPECT_FALSE(read_trace("{\"session\":1,\"block_size\":64}", 1).has_value());
  EXPECT_FALSE(read_trace("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,2\n", 1).has_value());
}

TEST(Traces, RecordedOnesAreReadAndSharePrefixes) {
  const std::filesystem::path folder =
      std::filesystem::path(ARTERY_SOURCE_DIR) / ".." / "shared" / "traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no ../shared/traces";
  struct Expected {
    const char *file, *format;
    std::size_t rows;
  };
  for (const Expected& expected :
       {Expected{"mooncake_conversation_trace.jsonl.zst", "mooncake", 12031},
        Expected{"rtpllm_flexlb_trace_30min.jsonl.zst", "rtp-llm", 8332},
        Expected{"claude_code_sessions_rle.jsonl.zst", "claude-code", 49334},
        Expected{"azure2023_conv.csv.zst", "azure", 19366},
        Expected{"vidur_arxiv_summarization.csv.zst", "vidur", 28257},
        Expected{"rtpllm_flexlb_pod1_arrivals.tsv.zst", "arrivals", 2413}}) {
    const auto bytes = read_packed((folder / expected.file).string(), std::size_t{1} << 30);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    const auto trace = read_trace(*bytes, SIZE_MAX);
    ASSERT_TRUE(trace.has_value()) << expected.file << ": " << trace.error().message;
    EXPECT_EQ(trace->format, expected.format);
    EXPECT_EQ(trace->rows.size(), expected.rows) << expected.file;
  }
  WordCounter counter;
  DatasetConfig config;
  config.name = "trace";
  config.path = (folder / "mooncake_conversation_trace.jsonl.zst").string();
  config.num_prompts = 20;
  config.input_len_max = 2000;
  config.trace_speedup = 2;
  const auto work = make(config, &counter);
  ASSERT_TRUE(work.has_value()) << work.error().message;
  EXPECT_TRUE(work->timed);
  for (const WorkRequest& request : work->requests) {
    EXPECT_LE(request.input_tokens, 2000);
    // All requests of this trace share block 0 of 512 tokens, about four bytes each.
    EXPECT_EQ(request.prompt.substr(0, 1500), work->requests[0].prompt.substr(0, 1500));
  }
  EXPECT_NE(work->requests[0].prompt, work->requests[1].prompt);
}

TEST(PackedFile, UnpacksChecksAndLimits) {
  const std::string path = testing::TempDir() + "artery_packed_test.zst";
  const std::string text(3'000'000, 'x');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  const auto write = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  };
  write(packed);
  EXPECT_EQ(*read_packed(path, 10'000'000), text);
  EXPECT_EQ(read_packed(path, 1'000'000).error().code, Code::kTooLarge);
  write(packed.substr(0, packed.size() - 5));
  EXPECT_EQ(read_packed(path, 10'000'000).error().code, Code::kBadFile);
  write(packed.substr(0, 4) + "nonsense");
  EXPECT_EQ(read_packed(path, 10'000'000).error().code, Code::kBadFile);
  write("plain");
  EXPECT_EQ(*read_packed(path, 100), "plain");
  std::remove(path.c_str());
  EXPECT_EQ(read_packed(path, 100).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace artery::bench
