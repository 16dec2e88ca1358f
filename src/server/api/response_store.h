#pragma once
// Answers of the Responses API that clients come back to (`store`, `previous_response_id`, GET and
// DELETE by id), in an SQLite database: in memory, or a file that survives restarts. Each belongs
// to the tenant that made it and lives for a time. All methods from any thread; a database error is
// kIo and never costs an answer.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/result.h"

struct sqlite3;

namespace artery::server::api {

struct ResponseStoreConfig {
  std::string file;  // empty: in memory
  std::int64_t ttl_s = 30 * 86400;
  // Of all texts together. Over it the tenant that has most loses its oldest.
  std::int64_t bytes_max = std::int64_t{256} << 20;
};

struct StoredResponse {
  std::string id, tenant;
  std::int64_t created_s = 0;  // unix time
  std::string input;           // the items of the whole input, a JSON array
  std::string output;          // the answer's items, a JSON array
  std::string response;        // the response object
};

class ResponseStore {
 public:
  // kIo / kBadFile: the file cannot be opened, or is no database of ours; names it.
  static Result<std::unique_ptr<ResponseStore>> open(ResponseStoreConfig config);
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;

  // Also drops what is too old or too much. kTooLarge: larger than all that is kept.
  Result<> put(const StoredResponse& response, std::int64_t now_s);
  // nullopt: never there, another tenant's, deleted or expired.
  Result<std::optional<StoredResponse>> get(
      const std::string& id, const std::string& tenant, std::int64_t now_s
  );
  // False: it was not there.
  Result<bool> remove(const std::string& id, const std::string& tenant);

 private:
  class Statement;
  ResponseStore(ResponseStoreConfig config, sqlite3* db) : config_(std::move(config)), db_(db) {}
  Result<> execute(const char* sql) REQUIRES(mu_);
  Result<> create_tables() REQUIRES(mu_);
  Result<> count_bytes() REQUIRES(mu_);
  Result<> prune(std::int64_t now_s) REQUIRES(mu_);
  // One deletion at a time, each row counted off its tenant. False: there was none.
  Result<bool> drop(Statement& statement) REQUIRES(mu_);
  std::int64_t bytes() const REQUIRES(mu_);
  Error failure(std::string_view what) const REQUIRES(mu_);

  const ResponseStoreConfig config_;
  Mutex mu_;
  sqlite3* db_ GUARDED_BY(mu_);
  std::map<std::string, std::int64_t> bytes_of_ GUARDED_BY(mu_
  );  // a tenant, of those that have some
};

}  // namespace artery::server::api
