#pragma once
// Images by http(s): the fetcher behind codec/image's resolver. The filter sees the very address
// that is connected to, for each redirect anew; names are resolved once a hop, so an answer that
// changes between check and use cannot happen. No proxy, no cookies, no credentials. fetch() blocks
// its thread for at most `timeout_s` and a name server's own patience; any number at once.

#include <functional>
#include <string>

#include "codec/image/resolver.h"
#include "server/http/address_filter.h"

namespace artery::server::http {

struct ImageFetcherConfig {
  // Whether the address (text) that `host` stands for may be connected to.
  std::function<bool(const std::string& host, const std::string& address)> admits =
      [](const std::string&, const std::string& address) { return is_public_address(address); };
  double timeout_s = 20;  // of a whole fetch, redirects included
  int redirects_max = 5;
  // PEM file of certificate authorities beside the system's; empty: none.
  std::string ca_file;
};

class HttpImageFetcher final : public codec::image::ImageFetcher {
 public:
  explicit HttpImageFetcher(ImageFetcherConfig config = {}) : config_(std::move(config)) {}
  tl::expected<std::string, Failure> fetch(const std::string& url, std::size_t bytes_max) override;

 private:
  ImageFetcherConfig config_;
};

}  // namespace artery::server::http
