// Any bytes as spaces.json, keys.json, an order or its answer: refused or read, and what is read is
// written back as it was. Damage of a sound keys.json never gives another key.

#include <cstdlib>
#include <string>

#include "kvstore/flat_json.h"
#include "kvstore/orders.h"
#include "kvstore/spaces.h"
#include "kvstore/tenant_keys.h"
#include "testing/mem_file_system.h"
#include "testing/seq_random.h"

namespace artery::kvstore {
namespace {

void require(bool fine) {
  if (!fine) std::abort();
}

void flat_json(std::string_view text) {
  const auto object = FlatJson::parse(text);
  if (!object) return;
  const auto again = FlatJson::parse(object->line());
  require(again && again->line() == object->line());
}

void spaces(std::string_view text) {
  int damaged = 0;
  for (const SpaceSpec& spec : parse_spaces(text, damaged)) {
    int none = 0;
    const auto again = parse_spaces(space_line(spec), none);
    require(again.size() == 1 && none == 0 && again[0].identity == spec.identity);
    require(text.find(space_line(spec)) != text.npos);
  }
}

void orders(std::string_view text) {
  std::int64_t written_s = 0, again_s = 0;
  if (const auto order = parse_order(text, written_s)) {
    const auto again = parse_order(order_line(*order, written_s), again_s);
    require(again && again->tenant == order->tenant && again_s == written_s);
  }
  if (const auto answer = parse_answer(text, written_s)) {
    const auto again = parse_answer(answer_line(*answer, written_s), again_s);
    require(again && again->has_value() == answer->has_value() && again_s == written_s);
  }
}

// The file of one tenant with a key, made once.
const std::string& sound_keys(TenantKeys::Key& key) {
  class OneFile final : public FileSystem {
   public:
    Result<std::unique_ptr<MappedFile>> map(const std::string& path) const override {
      return fail(Code::kNotFound, "{}", path);
    }
    Result<std::string> read(const std::string& path, std::size_t) const override {
      return fail(Code::kNotFound, "{}", path);
    }
    Result<> replace(const std::string&, std::string_view text) const override {
      text_ = text;
      return {};
    }
    Result<> sync_folder(const std::string&) override { return {}; }
    mutable std::string text_;
  };
  static OneFile files;
  static testing::SeqRandom random(1);
  static const TenantKeys::Key made =
      TenantKeys::open("s", AeadKey{1}, files, random).take()->for_writing("acme").take();
  key = made;
  return files.text_;
}

// Pairs of place and byte, put over a sound file; or the bytes themselves as the file.
void keys(std::string_view text, bool as_it_is) {
  TenantKeys::Key key;
  std::string file = sound_keys(key);
  if (as_it_is) file = text;
  for (std::size_t i = 0; !as_it_is && i + 2 < text.size(); i += 3) {
    const std::size_t at =
        static_cast<unsigned char>(text[i]) * 256u + static_cast<unsigned char>(text[i + 1]);
    file[at % file.size()] = text[i + 2];
  }
  testing::MemFileSystem files;
  files.add("s/keys.json", file);
  testing::SeqRandom random(2);
  const auto opened = TenantKeys::open("s", AeadKey{1}, files, random, true);
  if (!opened) return;
  const auto found = (*opened)->find("acme", key.id);
  require(!found || found->bytes == key.bytes);
}

}  // namespace
}  // namespace artery::kvstore

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace artery::kvstore;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      flat_json(text);
      break;
    case 1:
      spaces(text);
      break;
    case 2:
      orders(text);
      break;
    default:
      keys(text, data[0] % 5 == 3);
  }
  return 0;
}
