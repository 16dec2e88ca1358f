#include "kvstore/spaces.h"

#include <gtest/gtest.h>

#include "kvstore/flat_json.h"
#include "kvstore/record_format.h"
#include "testing/fault_file_system.h"

namespace artery::kvstore {
namespace {

constexpr const char* kPath = "store/spaces.json";

SpaceSpec spec(int i, const std::string& tenant = "acme") {
  return {"weights " + std::to_string(i) + std::string(100, 'x'), tenant, "model", 14240, 16};
}

std::unique_ptr<Spaces> open(FileSystem& files) {
  auto spaces = Spaces::open("store", files);
  EXPECT_TRUE(spaces) << spaces.error().message;
  return spaces.take();
}

class SpacesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.make_folder("store")); }

  std::unique_ptr<Spaces> open() { return kvstore::open(files_); }
  std::string text() const { return files_.text(kPath); }

  testing::FaultFileSystem files_;
};

TEST(FlatJson, ReadsWhatItWrites) {
  FlatJson object;
  object.add("text", "a\"b\\c\n\x01\x7f\xc3\xa9").add("number", std::int64_t{-5}).add("", "");
  const std::optional<FlatJson> back = FlatJson::parse(object.line());
  ASSERT_TRUE(back);
  EXPECT_EQ(*back->text("text"), "a\"b\\c\n\x01\x7f\xc3\xa9");
  EXPECT_EQ(*back->number("number"), -5);
  EXPECT_EQ(*back->text(""), "");
  EXPECT_EQ(back->text("number"), nullptr);
  EXPECT_EQ(back->number("none"), nullptr);
  EXPECT_EQ(back->line(), object.line());
}

TEST(FlatJson, RefusesTheRest) {
  for (const char* bad :
       {"",
        "{",
        "}",
        "[]",
        "{\"a\":1",
        "{\"a\":1,}",
        "{\"a\":1}x",
        "{\"a\":1,\"a\":2}",
        "{a:1}",
        "{\"a\":1.5}",
        "{\"a\":1e3}",
        "{\"a\":null}",
        "{\"a\":{}}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u00e9\"}",
        "{\"a\":\"\\u00\"}",
        "{\"a\":\"b}",
        "{\"a\":99999999999999999999}",
        "{\"a\":}",
        "{\"a\" 1}"})
    EXPECT_FALSE(FlatJson::parse(bad)) << bad;
  EXPECT_TRUE(FlatJson::parse(" { \"a\" : \"\\u0041\\/\" , \"b\":1 } "));
}

TEST_F(SpacesTest, SameSpecSameIdAndFoundAfterOpening) {
  Digest digest{};
  {
    const auto spaces = open();
    const SpaceId a = spaces->add(spec(1));
    EXPECT_EQ(spaces->add(spec(1)), a);
    EXPECT_NE(spaces->add(spec(1, "other")), a);
    SpaceSpec renamed = spec(1);
    renamed.model = "another name";
    EXPECT_EQ(spaces->add(renamed), a);
    digest = spaces->digest(a);
    EXPECT_TRUE(text().empty());
    ASSERT_TRUE(spaces->save(a));
    ASSERT_TRUE(spaces->save(a));
  }
  const auto spaces = open();
  EXPECT_EQ(spaces->count(), 1);  // the other one had no record
  EXPECT_EQ(spaces->damaged_lines(), 0);
  const auto found = spaces->find(digest);
  ASSERT_TRUE(found);
  EXPECT_EQ(spaces->spec(*found).tenant, "acme");
  EXPECT_EQ(spaces->spec(*found).identity, spec(1).identity);
  EXPECT_EQ(spaces->spec(*found).page_bytes, 14240);
}

TEST_F(SpacesTest, TheLaterLayoutOfOneIdentityCounts) {
  const auto spaces = open();
  const SpaceId id = spaces->add(spec(1));
  ASSERT_TRUE(spaces->save(id));
  SpaceSpec changed = spec(1);
  changed.record_pages = 8;
  EXPECT_EQ(spaces->add(changed), id);
  EXPECT_EQ(spaces->spec(id).record_pages, 8);
  ASSERT_TRUE(spaces->save(id));
  const auto back = open();
  EXPECT_EQ(back->count(), 1);
  EXPECT_EQ(back->spec(0).record_pages, 8);
}

TEST_F(SpacesTest, AppendsAcrossBlocksAndOpenings) {
  std::vector<Digest> digests;
  for (int round = 0; round < 4; ++round) {
    const auto spaces = open();
    EXPECT_EQ(spaces->count(), static_cast<int>(digests.size()));
    for (int i = 0; i < 25; ++i) {
      const SpaceId id = spaces->add(spec(100 * round + i));
      ASSERT_TRUE(spaces->save(id));
      digests.push_back(spaces->digest(id));
      EXPECT_EQ(text().size() % 4096, 0u);
    }
  }
  const auto spaces = open();
  EXPECT_GT(text().size(), 4 * 4096u);
  EXPECT_EQ(spaces->damaged_lines(), 0);
  for (const Digest& digest : digests) EXPECT_TRUE(spaces->find(digest));
}

TEST_F(SpacesTest, ALineThatFillsItsBlockToTheBrim) {
  const auto first = open();
  SpaceSpec one = spec(1);
  const std::size_t bare = space_line(one).size() + 1;
  one.identity += std::string(4096 - bare, 'y');
  ASSERT_TRUE(first->save(first->add(one)));
  EXPECT_EQ(text().size(), 4096u);
  ASSERT_TRUE(first->save(first->add(spec(2))));
  const auto second = open();
  EXPECT_EQ(second->count(), 2);
  ASSERT_TRUE(second->save(second->add(spec(3))));
  EXPECT_EQ(open()->count(), 3);
  EXPECT_EQ(open()->damaged_lines(), 0);
}

TEST_F(SpacesTest, DamageCostsOnlyItsLine) {
  {
    const auto spaces = open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(spaces->save(spaces->add(spec(i))));
  }
  const std::string sound = text();
  const std::size_t first_line = sound.find('\n');
  for (std::size_t at = 0; at < first_line; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = sound;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      int damaged = 0;
      EXPECT_EQ(parse_spaces(bad, damaged).size(), 2u) << at;
      EXPECT_GE(damaged, 1) << at;
    }
  }
  files_.put(kPath, sound.substr(0, first_line + 20));  // torn, and no whole block any more
  const auto torn = open();
  EXPECT_EQ(torn->count(), 1);
  EXPECT_EQ(torn->damaged_lines(), 1);
  ASSERT_TRUE(torn->save(torn->add(spec(7))));
  const auto back = open();
  EXPECT_EQ(back->count(), 2);
  EXPECT_EQ(back->damaged_lines(), 0);
  EXPECT_EQ(text().size() % 4096, 0u);
}

// What save() has acknowledged is there after any crash, and nothing else is made up.
TEST_F(SpacesTest, ACrashAtEveryEventKeepsWhatWasSaved) {
  constexpr int kSpaces = 40;
  std::int64_t n = 0;
  for (bool crashed = true; crashed;) {
    crashed = false;
    ++n;
    for (const testing::Crash crash : {testing::Crash::kProcess, testing::Crash::kPower}) {
      testing::FaultFileSystem files(static_cast<std::uint64_t>(n));
      ASSERT_TRUE(files.make_folder("store"));
      files.sync_all();
      files.crash_at(n);
      const auto spaces = kvstore::open(files);
      int saved = 0;
      while (saved < kSpaces && spaces->save(spaces->add(spec(saved)))) ++saved;
      crashed = crashed || files.crashed();
      const auto after = files.after_crash(crash, static_cast<std::uint64_t>(n) + 77);
      const auto back = kvstore::open(*after);
      for (int i = 0; i < saved; ++i)
        EXPECT_TRUE(back->find(space_digest(spec(i).identity, "acme"))) << files.crash_point();
      EXPECT_LE(back->count(), saved + 1);
      ASSERT_TRUE(back->save(back->add(spec(99))));
      EXPECT_GE(kvstore::open(*after)->count(), saved + 1);
    }
  }
  EXPECT_GT(n, 2 * kSpaces);
}

TEST_F(SpacesTest, AFailedWriteIsTriedAgain) {
  const auto spaces = open();
  ASSERT_TRUE(spaces->save(spaces->add(spec(1))));
  files_.inject({.ops = testing::Fault::kWrite, .times = 1});
  const SpaceId id = spaces->add(spec(2));
  EXPECT_FALSE(spaces->save(id));
  ASSERT_TRUE(spaces->save(id));
  EXPECT_EQ(open()->count(), 2);
}

TEST_F(SpacesTest, DroppedTenantLeavesTheFileAndMayReturn) {
  const auto spaces = open();
  const SpaceId a = spaces->add(spec(1, "secretive")), b = spaces->add(spec(1, "stays"));
  ASSERT_TRUE(spaces->save(a));
  ASSERT_TRUE(spaces->save(b));
  ASSERT_TRUE(spaces->drop_tenant("nobody"));
  ASSERT_TRUE(spaces->drop_tenant("secretive"));
  EXPECT_EQ(text().find("secretive"), std::string::npos);
  EXPECT_EQ(open()->count(), 1);
  EXPECT_EQ(spaces->add(spec(1, "secretive")), a);
  ASSERT_TRUE(spaces->save(a));
  EXPECT_EQ(open()->count(), 2);
}

TEST_F(SpacesTest, AFileThatCannotBeReadIsAnError) {
  files_.put(kPath, "{}");
  files_.inject({.ops = testing::Fault::kOpen, .name = "spaces.json"});
  const auto spaces = Spaces::open("store", files_);
  ASSERT_FALSE(spaces);
  EXPECT_EQ(spaces.error().code, Code::kIo);
}

}  // namespace
}  // namespace artery::kvstore
