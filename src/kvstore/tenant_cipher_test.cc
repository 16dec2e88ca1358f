#include "kvstore/tenant_cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "testing/fault_file_system.h"
#include "testing/seq_random.h"

namespace artery::kvstore {
namespace {

constexpr std::int64_t kPayload = 20'000;

class TenantCipherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(files_.make_folder("store"));
    keys_ = TenantKeys::open("store", master_, files_, random_).take();
    spaces_ = Spaces::open("store", files_).take();
    space_ = spaces_->add({"weights", "acme", "model", kPayload, 1});
    other_ = spaces_->add({"weights", "other", "model", kPayload, 1});
    cipher_ = std::make_unique<TenantCipher>(*keys_, *spaces_, random_);
    for (TokenId i = 0; i < 16; ++i) ids_.push_back(1'000'000 + 7919 * i);
    for (std::int64_t i = 0; i < kPayload; ++i)
      payload_.push_back(static_cast<std::byte>(random_.next()));
    plain_ = plain(header_);
  }

  // Header as before sealing, and a record with ids and payload in their places.
  std::vector<std::byte> plain(RecordHeader& header) {
    header = RecordHeader{};
    header.space = spaces_->digest(space_);
    header.pages = 1;
    header.ids = static_cast<int>(ids_.size());
    header.payload_bytes = kPayload;
    std::vector<std::byte> record(static_cast<std::size_t>(record_bytes(header.ids, kPayload)));
    put_ids(ids_, record);
    std::ranges::copy(payload_, record.begin() + payload_offset(header.ids));
    return record;
  }
  bool is_plain(const RecordHeader& header, std::span<const std::byte> record) const {
    return holds_ids(header, record, ids_) &&
           std::ranges::equal(record_payload(header, record), payload_);
  }

  testing::FaultFileSystem files_;
  testing::SeqRandom random_{3};
  AeadKey master_{9};
  std::unique_ptr<TenantKeys> keys_;
  std::unique_ptr<Spaces> spaces_;
  std::unique_ptr<TenantCipher> cipher_;
  SpaceId space_ = 0, other_ = 0;
  std::vector<TokenId> ids_;
  std::vector<std::byte> payload_;
  RecordHeader header_;
  std::vector<std::byte> plain_;
};

TEST_F(TenantCipherTest, ThroughTheFormatAndBack) {
  std::vector<std::byte> record = plain_;
  ASSERT_TRUE(cipher_->seal(space_, header_, record));
  encode_record(header_, record);
  auto back = decode_record_header(record, "test").take();
  EXPECT_TRUE(back.encrypted);
  EXPECT_NE(back.key_id, 0u);
  EXPECT_TRUE(check_payload(back, record));  // needs no key
  ASSERT_TRUE(cipher_->open(space_, back, record));
  EXPECT_TRUE(is_plain(back, record));
}

TEST_F(TenantCipherTest, NoIdAndNoByteOfThePayloadShows) {
  std::vector<std::byte> record = plain_;
  ASSERT_TRUE(cipher_->seal(space_, header_, record));
  encode_record(header_, record);
  const std::string_view all(reinterpret_cast<const char*>(record.data()), record.size());
  for (const TokenId id : ids_) {
    const std::string_view bytes(reinterpret_cast<const char*>(&id), 4);
    EXPECT_EQ(all.find(bytes), all.npos) << id;
  }
  const std::string_view text(reinterpret_cast<const char*>(payload_.data()), payload_.size());
  for (std::size_t at = 0; at + 6 <= text.size(); at += 6)
    EXPECT_EQ(all.find(text.substr(at, 6)), all.npos) << at;
}

TEST_F(TenantCipherTest, TheSameRecordNeverLooksTheSame) {
  std::vector<std::byte> one = plain_, two = plain_;
  RecordHeader second = header_;
  ASSERT_TRUE(cipher_->seal(space_, header_, one));
  ASSERT_TRUE(cipher_->seal(space_, second, two));
  EXPECT_NE(header_.nonce, second.nonce);
  EXPECT_NE(one, two);
}

TEST_F(TenantCipherTest, AnotherTenantCannotOpen) {
  std::vector<std::byte> record = plain_;
  ASSERT_TRUE(cipher_->seal(space_, header_, record));
  const auto by_other = cipher_->open(other_, header_, record);
  ASSERT_FALSE(by_other);
  EXPECT_EQ(by_other.error().code, Code::kNotFound);
  // Nor with its own key named: the tag is of another key.
  RecordHeader renamed = header_;
  renamed.key_id = keys_->for_writing("other").take().id;
  EXPECT_EQ(cipher_->open(other_, renamed, record).error().code, Code::kBadFile);
  EXPECT_FALSE(is_plain(header_, record));
}

TEST_F(TenantCipherTest, ADroppedTenantsRecordsStayShut) {
  std::vector<std::byte> record = plain_;
  ASSERT_TRUE(cipher_->seal(space_, header_, record));
  const std::vector<std::byte> sealed = record;
  ASSERT_TRUE(cipher_->drop_tenant("acme"));
  EXPECT_EQ(cipher_->open(space_, header_, record).error().code, Code::kNotFound);
  RecordHeader later;
  std::vector<std::byte> anew = plain(later);
  ASSERT_TRUE(cipher_->seal(space_, later, anew));  // the tenant is back
  EXPECT_NE(later.key_id, header_.key_id);
  record = sealed;
  EXPECT_EQ(cipher_->open(space_, header_, record).error().code, Code::kNotFound);
  EXPECT_TRUE(cipher_->open(space_, later, anew));
  EXPECT_TRUE(is_plain(later, anew));
}

TEST_F(TenantCipherTest, EveryFlippedBitIsSeen) {
  std::vector<std::byte> sealed = plain_;
  ASSERT_TRUE(cipher_->seal(space_, header_, sealed));
  const auto opens = [&](const RecordHeader& header, std::vector<std::byte> record) {
    return cipher_->open(space_, header, record).has_value();
  };
  ASSERT_TRUE(opens(header_, sealed));
  for (std::size_t bit = 0; bit < 8 * header_.nonce.size(); ++bit) {
    RecordHeader bad = header_;
    bad.nonce[bit / 8] = static_cast<std::uint8_t>(bad.nonce[bit / 8] ^ (1u << bit % 8));
    EXPECT_FALSE(opens(bad, sealed)) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * header_.tag.size(); ++bit) {
    RecordHeader bad = header_;
    bad.tag[bit / 8] = static_cast<std::uint8_t>(bad.tag[bit / 8] ^ (1u << bit % 8));
    EXPECT_FALSE(opens(bad, sealed)) << bit;
  }
  const std::size_t begin = static_cast<std::size_t>(kRecordHeaderBytes);
  const std::size_t end = begin + 4 * ids_.size() + static_cast<std::size_t>(kPayload);
  for (std::size_t at = begin; at < end; at += at < begin + 100 ? 1 : 97) {
    std::vector<std::byte> bad = sealed;
    bad[at] ^= std::byte{0x10};
    EXPECT_FALSE(opens(header_, bad)) << at;
  }
  // What names the record is covered as well.
  std::vector<RecordHeader> others(5, header_);
  others[0].key[5] ^= 1;
  others[1].parent[31] ^= 1;
  others[2].space[0] ^= 1;
  others[3].kind = RecordKind::kWindow;
  others[4].pages = 2;
  for (const RecordHeader& other : others) EXPECT_FALSE(opens(other, sealed));
  // What a copy forward may change is not.
  RecordHeader copy = header_;
  copy.ttl = TtlClass::kChat;
  copy.sequence = 77;
  copy.guaranteed_until_s = 123;
  EXPECT_TRUE(opens(copy, sealed));
}

TEST_F(TenantCipherTest, WrongSizesAreRefused) {
  std::vector<std::byte> record = plain_;
  ASSERT_TRUE(cipher_->seal(space_, header_, record));
  std::vector<std::byte> cut(record.begin(), record.begin() + 4096);
  EXPECT_EQ(cipher_->open(space_, header_, cut).error().code, Code::kBadFile);
}

TEST_F(TenantCipherTest, ManyTenantsKeepTheirKeysApart) {
  struct Sealed {
    SpaceId space;
    RecordHeader header;
    std::vector<std::byte> record;
  };
  std::vector<Sealed> all;
  for (int i = 0; i < 150; ++i) {  // more than the key schedules that are kept
    Sealed one{spaces_->add({"weights", std::to_string(i), "model", kPayload, 1}), {}, {}};
    one.record = plain(one.header);
    ASSERT_TRUE(cipher_->seal(one.space, one.header, one.record));
    all.push_back(std::move(one));
  }
  for (Sealed& one : all) {
    ASSERT_TRUE(cipher_->open(one.space, one.header, one.record));
    EXPECT_TRUE(is_plain(one.header, one.record));
  }
}

}  // namespace
}  // namespace artery::kvstore
