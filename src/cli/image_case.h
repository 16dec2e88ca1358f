#pragma once
// Lines of ../shared/golden/codec/images.jsonl: preprocessed or resolved, and answered in the same
// form. One thread at a time. It keeps every input it was given: later lines name them by digest.

#include <map>
#include <string>

#include "base/result.h"
#include "codec/api/json_tree.h"
#include "codec/image/resolver.h"

namespace artery::cli {

class ImageCases {
 public:
  // `fetcher` must outlive this.
  explicit ImageCases(codec::image::ImageFetcher& fetcher) : fetcher_(fetcher) {}

  // `"result":{...}` or `"error":{...}`, for a resolve also `"quota_after"`. `line`: {"op",...}
  // with
  //   preprocess        detail, max_dimension_px, low_detail_max_dimension_px, and input_base64 or
  //                     the input_sha256 of an earlier line's
  //   token_adjustment  sizes: [[width, height], ...]
  //   resolve           sources: [{kind: data_url|url|bytes, detail, path, times, and value (of
  //                     bytes: base64), repeat: [text, count], or the sha256 of an earlier input}]
  //   resolve_more      the same, on the quota that the last resolve_more left
  // kInvalidArgument: what is missing, of a wrong kind or unknown.
  Result<std::string> answer(const codec::api::Json& line);

 private:
  Result<std::string> preprocess(const codec::api::Json& line);
  Result<std::string> token_adjustment(const codec::api::Json& line) const;
  Result<std::string> resolve(const codec::api::Json& line, bool is_more);
  Result<std::string> input_of(const codec::api::Json& line);
  Result<std::vector<codec::api::ImageSource>> sources_of(const codec::api::Json& line) const;
  Result<std::string> data_of(const codec::api::Json& source, bool is_bytes) const;
  Result<std::string> known(std::string_view sha256) const;

  codec::image::ImageFetcher& fetcher_;
  std::map<std::string, std::string, std::less<>> inputs_;  // hex SHA-256 to bytes
  codec::image::ImageQuota more_;
};

}  // namespace artery::cli
