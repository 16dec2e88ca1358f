#include "server/api/response_store.h"

#include <fmt/core.h>
#include <sqlite3.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace artery::server::api {
namespace {

// "ARTR" and the version of the tables: another program's database is left alone.
constexpr int kApplicationId = 0x41525452;
constexpr int kVersion = 1;

constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS responses (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  tenant TEXT NOT NULL,
  created_s INTEGER NOT NULL,
  input TEXT NOT NULL,
  output TEXT NOT NULL,
  response TEXT NOT NULL,
  bytes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_age ON responses (created_s);
CREATE INDEX IF NOT EXISTS by_tenant ON responses (tenant, number);
)";

}  // namespace

// A prepared statement for one use.
class ResponseStore::Statement {
 public:
  Statement(sqlite3* db, const char* sql) { ok_ = sqlite3_prepare_v2(db, sql, -1, &it_, {}) == 0; }
  ~Statement() { sqlite3_finalize(it_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::string_view text) {
    const auto size = static_cast<sqlite3_uint64>(text.size());
    ok_ = ok_ && sqlite3_bind_text64(it_, ++bound_, text.data(), size, nullptr, SQLITE_UTF8) == 0;
    return *this;
  }
  Statement& bind(std::int64_t number) {
    ok_ = ok_ && sqlite3_bind_int64(it_, ++bound_, number) == 0;
    return *this;
  }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int step() { return ok_ ? sqlite3_step(it_) : SQLITE_ERROR; }

  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(it_, column));
    if (bytes == nullptr) return {};
    return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(it_, column))};
  }
  std::int64_t number(int column) const { return sqlite3_column_int64(it_, column); }

 private:
  sqlite3_stmt* it_ = nullptr;
  bool ok_ = false;
  int bound_ = 0;
};

Error ResponseStore::failure(std::string_view what) const {
  return {
      Code::kIo,
      fmt::format(
          "{}: cannot {}: {}",
          config_.file.empty() ? "stored responses" : config_.file,
          what,
          sqlite3_errmsg(db_)
      ),
      {}
  };
}

Result<> ResponseStore::execute(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return tl::unexpected<Error>(failure("prepare the database"));
}

Result<> ResponseStore::create_tables() {
  std::int64_t application = 0, version = 0;
  {
    Statement found(db_, "PRAGMA application_id");
    if (found.step() != SQLITE_ROW) return tl::unexpected<Error>(failure("read the file"));
    application = found.number(0);
  }
  {
    Statement found(db_, "PRAGMA user_version");
    if (found.step() == SQLITE_ROW) version = found.number(0);
  }
  std::int64_t tables = 0;
  {
    Statement found(db_, "SELECT count(*) FROM sqlite_schema");
    if (found.step() == SQLITE_ROW) tables = found.number(0);
  }
  if (tables > 0 && (application != kApplicationId || version != kVersion)) {
    return fail(
        Code::kBadFile,
        "{} is a database of something else, or of another version of artery; name a new file",
        config_.file
    );
  }
  TRY(execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;"));
  TRY(execute(kTables));
  const std::string ids =
      fmt::format("PRAGMA application_id={}; PRAGMA user_version={};", kApplicationId, kVersion);
  return execute(ids.c_str());
}

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(ResponseStoreConfig config) {
  sqlite3* db = nullptr;
  const std::string name = config.file.empty() ? ":memory:" : config.file;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int opened = sqlite3_open_v2(name.c_str(), &db, kFlags, nullptr);
  std::unique_ptr<ResponseStore> store(new ResponseStore(std::move(config), db));
  const MutexLock lock(store->mu_);
  if (opened != SQLITE_OK) return tl::unexpected<Error>(store->failure("open it"));
  // Another process may be looking at the file.
  constexpr int kBusyMs = 2000;
  sqlite3_busy_timeout(db, kBusyMs);
  TRY(store->create_tables());
  TRY(store->count_bytes());
  return store;
}

ResponseStore::~ResponseStore() {
  const MutexLock lock(mu_);
  sqlite3_close(db_);
}

Result<> ResponseStore::count_bytes() {
  Statement sums(db_, "SELECT tenant, sum(bytes) FROM responses GROUP BY tenant");
  int step = sums.step();
  for (; step == SQLITE_ROW; step = sums.step()) bytes_of_[sums.text(0)] = sums.number(1);
  if (step != SQLITE_DONE) return tl::unexpected<Error>(failure("read the file"));
  return {};
}

std::int64_t ResponseStore::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [tenant, bytes] : bytes_of_) sum += bytes;
  return sum;
}

Result<bool> ResponseStore::drop(Statement& statement) {
  bool has_dropped = false;
  int step = statement.step();
  for (; step == SQLITE_ROW; step = statement.step()) {
    has_dropped = true;
    const auto of = bytes_of_.find(statement.text(0));
    if (of == bytes_of_.end()) continue;  // of another process
    of->second -= statement.number(1);
    if (of->second <= 0) bytes_of_.erase(of);
  }
  if (step != SQLITE_DONE) return tl::unexpected<Error>(failure("drop responses"));
  return has_dropped;
}

Result<> ResponseStore::prune(std::int64_t now_s) {
  Statement old(db_, "DELETE FROM responses WHERE created_s < ? RETURNING tenant, bytes");
  TRY(drop(old.bind(now_s - config_.ttl_s)));
  while (bytes() > config_.bytes_max) {
    const auto most =
        std::ranges::max_element(bytes_of_, {}, [](const auto& of) { return of.second; });
    const std::string tenant = most->first;
    Statement oldest(
        db_,
        "DELETE FROM responses WHERE number = (SELECT min(number) FROM responses WHERE tenant = ?) "
        "RETURNING tenant, bytes"
    );
    // Nothing there: another process has deleted it.
    if (!TRY(drop(oldest.bind(tenant)))) bytes_of_.erase(tenant);
  }
  return {};
}

Result<> ResponseStore::put(const StoredResponse& response, std::int64_t now_s) {
  const MutexLock lock(mu_);
  const std::size_t bytes =
      response.input.size() + response.output.size() + response.response.size();
  // It would push out all others and then itself.
  if (static_cast<std::int64_t>(bytes) > config_.bytes_max) {
    return fail(
        Code::kTooLarge,
        "it takes {} bytes, more than --responses-max-bytes {}",
        bytes,
        config_.bytes_max
    );
  }
  {
    Statement insert(
        db_,
        "INSERT INTO responses (id, tenant, created_s, input, output, response, bytes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)"
    );
    insert.bind(response.id).bind(response.tenant).bind(response.created_s);
    insert.bind(response.input).bind(response.output).bind(response.response);
    insert.bind(static_cast<std::int64_t>(bytes));
    if (insert.step() != SQLITE_DONE) return tl::unexpected<Error>(failure("store a response"));
  }
  bytes_of_[response.tenant] += static_cast<std::int64_t>(bytes);
  return prune(now_s);
}

Result<std::optional<StoredResponse>> ResponseStore::get(
    const std::string& id, const std::string& tenant, std::int64_t now_s
) {
  const MutexLock lock(mu_);
  Statement query(
      db_,
      "SELECT created_s, input, output, response FROM responses WHERE id = ? AND tenant = ? AND "
      "created_s >= ?"
  );
  const int step = query.bind(id).bind(tenant).bind(now_s - config_.ttl_s).step();
  if (step == SQLITE_DONE) return std::optional<StoredResponse>();
  if (step != SQLITE_ROW) return tl::unexpected<Error>(failure("read a response"));
  return std::optional<StoredResponse>(
      StoredResponse{id, tenant, query.number(0), query.text(1), query.text(2), query.text(3)}
  );
}

Result<bool> ResponseStore::remove(const std::string& id, const std::string& tenant) {
  const MutexLock lock(mu_);
  Statement erase(db_, "DELETE FROM responses WHERE id = ? AND tenant = ? RETURNING tenant, bytes");
  return drop(erase.bind(id).bind(tenant));
}

}  // namespace artery::server::api
