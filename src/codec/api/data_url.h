#pragma once
// data: URLs as the Fetch standard's data: URL processor reads them (fetch.spec.whatwg.org, "data:
// URLs"), with the forgiving base64 of the Infra standard: what requests bring images in. Pure
// functions, any thread; linear. Never fetches anything.

#include <optional>
#include <string>
#include <string_view>

namespace artery::codec::api {

struct DataUrl {
  std::string mime;  // "image/png", lower case, no parameters; text/plain when it is none
  bool is_base64 = false;
  std::string_view body;  // behind the comma, still encoded

  // The body's bytes; nullopt when it is no base64.
  std::optional<std::string> decode() const;
  // Whether decode() gives bytes, without making them.
  bool decodes() const;
  // webp, png, jpeg, gif.
  bool is_image() const;
};

// Nullopt when it is no data: URL or has no comma. Views into `url`.
std::optional<DataUrl> read_data_url(std::string_view url);

}  // namespace artery::codec::api
