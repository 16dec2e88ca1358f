#include "kvstore/folder_secret.h"

#include <cstring>
#include <span>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/random.h"

namespace artery::kvstore {
namespace {

constexpr std::size_t kSecretBytes = 32;

Result<std::string> make_secret(const std::string& folder, FileSystem& files) {
  std::string secret(kSecretBytes, '\0');
  for (std::size_t i = 0; i < kSecretBytes; i += 8) {
    const std::uint64_t bits = system_random().next();
    std::memcpy(&secret[i], &bits, 8);
  }
  TRY(files.replace(folder + "/secret", secret));
  TRY(files.sync_folder(folder));
  return secret;
}

}  // namespace

std::uint32_t secret_check(std::string_view secret) {
  return crc32c(std::as_bytes(std::span(secret)));
}

Result<std::string> open_secret(
    const std::string& folder, FileSystem& files, const SecretFacts& facts
) {
  const std::string path = folder + "/secret";
  auto text = files.read(path, kSecretBytes);
  std::string wrong;
  if (text && text->size() == kSecretBytes) {
    if (!facts.check || *facts.check == secret_check(*text)) return text.take();
    wrong = "damaged: not the bytes that were made with the store";
  } else if (text) {
    wrong = fmt::format("damaged: {} bytes, not {}", text->size(), kSecretBytes);
  } else if (text.error().code == Code::kTooLarge) {
    wrong = fmt::format("damaged: more than {} bytes", kSecretBytes);
  } else if (text.error().code == Code::kNotFound) {
    wrong = "missing";
  } else {
    return text;
  }
  if (facts.records > 0) {
    return fail(
        Code::kBadFile,
        "{}: {}; the {} records in this folder are named with it and cannot be found without it. "
        "Put it back from a backup, or delete the folder to start over",
        path,
        wrong,
        facts.records
    );
  }
  if (!facts.may_make) {
    return fail(
        Code::kBadFile, "{}: {}; a server that opens the folder for writing makes it", path, wrong
    );
  }
  if (wrong != "missing") log_warn("{}: {}; made anew, no records are lost", path, wrong);
  return make_secret(folder, files);
}

}  // namespace artery::kvstore
