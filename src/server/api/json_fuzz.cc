// Bytes as bodies of every POST endpoint, through parsing and validation: a value or an error that
// says something, never a crash.

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/api/errors.h"
#include "server/api/json_reader.h"
#include "server/api/json_writer.h"
#include "server/api/requests.h"

namespace {

namespace api = artery::server::api;

constexpr std::int64_t kVocab = 1000;

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename T>
void check(const artery::Result<T>& result) {
  if (result) return;
  require(!result.error().message.empty());
  const api::ApiError shown = api::to_api_error(result.error(), "id");
  require(shown.status == 400 || shown.status == 501);
  require(api::is_utf8(api::error_json(shown)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = api::parse_json(text, 64);
  check(body);
  if (!body) return 0;
  const auto chat = api::read_chat(*body, kVocab);
  check(chat);
  if (chat) {
    require(!chat->input.messages.empty() && chat->params.n >= 1);
    for (const auto& message : chat->input.messages) {
      require(api::parse_json(message.json, 256).has_value());
    }
  }
  const auto completion = api::read_completion(*body, kVocab);
  check(completion);
  if (completion) {
    require(!completion->prompts.empty());
    for (const auto& prompt : completion->prompts) {
      for (const artery::TokenId id : prompt.ids) require(id >= 0 && id < kVocab);
    }
  }
  check(api::read_tokenize(*body));
  check(api::read_detokenize(*body, kVocab));
  return 0;
}
