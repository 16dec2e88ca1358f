#include "cli/store_text.h"

#include <algorithm>
#include <cmath>

#include "cli/report.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

constexpr std::size_t kShownMax = 20;

std::string size_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

json::string text_of(std::string_view text) { return json::string(text.data(), text.size()); }

void state_rows(Table& table, const kvstore::Survey& survey, std::int64_t now_s) {
  const kvstore::StoreStatus& status = survey.status;
  table.row("store", status.folder);
  const bool is_clean = survey.super.is_clean;
  table.row(
      "state",
      survey.is_live ? "open for writing by " + survey.holder
      : is_clean     ? "closed in order"
                     : "closed by a crash; the next start puts it in order",
      survey.is_live ? "open"
      : is_clean     ? "clean"
                     : "crashed"
  );
  const double age = static_cast<double>(now_s - survey.super.created_s);
  table.row(
      "made",
      age_text(age) + " ago, opened for writing " + std::to_string(status.epoch) + " times",
      survey.super.created_s
  );
  table.json_only("epoch", status.epoch);
  const bool is_sick = !survey.troubles.empty();
  table.row(
      "health",
      is_sick                    ? fmt::format("{} troubles, below", survey.troubles.size())
      : survey.is_disk_read_only ? "sound; the file system is read-only"
                                 : "sound, as far as segments and journal tell",
      is_sick                    ? "damaged"
      : survey.is_disk_read_only ? "read-only"
                                 : "ok"
  );
  table.row("free on the disk", size_text(survey.disk_free_bytes), survey.disk_free_bytes);
}

void bytes_rows(Table& table, const kvstore::Survey& survey) {
  const kvstore::StoreStatus& status = survey.status;
  table.row("bytes", size_text(status.bytes_used), status.bytes_used);
  table.row(
      "segments",
      fmt::format("{}, {} of them sealed", status.segments, survey.sealed_segments),
      status.segments
  );
  table.json_only("segments_sealed", survey.sealed_segments);
  table.row(
      "records",
      fmt::format("{} can be hit, {}", status.records, size_text(status.bytes_live)),
      status.records
  );
  table.json_only("bytes_live", status.bytes_live);
  if (status.bytes_live > 0) {
    const double share =
        static_cast<double>(status.bytes_used) / static_cast<double>(status.bytes_live);
    table.row(
        "files to records",
        fmt::format("{:.2f} bytes of files for each byte that can be hit", share),
        share
    );
  }
  // What was copied forward and is gone since only the process that did it has counted.
  if (survey.is_live) table.line("write amplification   GET /artery/cache of the running server");
  table.row(
      "expired",
      fmt::format(
          "{} records, {}, until their segments go",
          survey.expired_records,
          size_text(survey.expired_bytes)
      ),
      survey.expired_records
  );
  table.json_only("expired_bytes", survey.expired_bytes);
  if (survey.unknown_records > 0)
    table.row(
        "of unknown spaces",
        fmt::format("{} records, {}", survey.unknown_records, size_text(survey.unknown_bytes)),
        survey.unknown_records
    );
  table.row(
      "encryption",
      !survey.is_encrypted ? "none"
                           : fmt::format(
                                 "AES-256-GCM, a key a tenant; {} of {} records encrypted{}",
                                 survey.encrypted_records,
                                 survey.disk_records,
                                 survey.encrypted_records < survey.disk_records
                                     ? ", the others are plain text from before"
                                     : ""
                             ),
      survey.is_encrypted
  );
  table.json_only("encrypted_records", survey.encrypted_records);
  table.json_only("disk_records", survey.disk_records);
}

void class_rows(Table& table, const kvstore::StoreStatus& status) {
  table.line("\nclass    records        bytes       tokens  segments  oldest use    median");
  json::object all;
  for (const kvstore::TtlClass ttl : kvstore::kAllTtlClasses) {
    const kvstore::ClassStatus& of = status.classes[static_cast<std::size_t>(ttl)];
    if (of.records > 0 || of.segments > 0)
      table.line(fmt::format(
          "{:<7}{:>9} {:>12} {:>12} {:>9}  {:<12}  {}",
          kvstore::name(ttl),
          of.records,
          size_text(of.bytes),
          of.tokens,
          of.segments,
          of.records > 0 ? age_text(of.oldest_s) : "-",
          of.records > 0 ? age_text(of.median_age_s) : "-"
      ));
    all[text_of(kvstore::name(ttl))] = json::object{
        {"records", of.records},
        {"bytes", of.bytes},
        {"tokens", of.tokens},
        {"segments", of.segments},
        {"oldest_s", of.oldest_s},
        {"median_age_s", of.median_age_s},
    };
  }
  table.json_only("classes", std::move(all));
}

void tenant_rows(Table& table, const kvstore::Survey& survey) {
  json::array tenants, spaces;
  table.line("\ntenant                records        bytes");
  std::size_t shown = 0;
  for (const kvstore::TenantStatus& tenant : survey.status.tenants) {
    if (shown++ < kShownMax)
      table.line(fmt::format(
          "{:<20.40}{:>9} {:>12}",
          tenant_text(tenant.tenant),
          tenant.records,
          size_text(tenant.bytes)
      ));
    tenants.push_back(json::object{
        {"tenant", tenant.tenant},
        {"records", tenant.records},
        {"bytes", tenant.bytes},
        {"encrypted", tenant.encrypted},
    });
  }
  if (shown > kShownMax) table.line(fmt::format("... and {} more (--json)", shown - kShownMax));
  table.line(
      "\nmodel                               records        bytes  page bytes  pages a record  "
      "tenant"
  );
  shown = 0;
  for (const kvstore::SpaceLine& space : survey.spaces) {
    if (shown++ < kShownMax)
      table.line(fmt::format(
          "{:<32.32}  {:>9} {:>12} {:>11} {:>15}  {}",
          space.spec.model,
          space.records,
          size_text(space.bytes),
          space.spec.page_bytes,
          space.spec.record_pages,
          tenant_text(space.spec.tenant)
      ));
    spaces.push_back(json::object{
        {"model", space.spec.model},
        {"tenant", space.spec.tenant},
        {"identity", space.spec.identity},
        {"page_bytes", space.spec.page_bytes},
        {"record_pages", space.spec.record_pages},
        {"records", space.records},
        {"bytes", space.bytes},
    });
  }
  if (shown > kShownMax) table.line(fmt::format("... and {} more (--json)", shown - kShownMax));
  table.json_only("tenants", std::move(tenants));
  table.json_only("spaces", std::move(spaces));
}

void trouble_rows(Table& table, const kvstore::Survey& survey) {
  json::array troubles, unknown;
  if (!survey.troubles.empty()) table.line("\ntroubles");
  for (const std::string& trouble : survey.troubles) {
    table.line("  " + trouble);
    troubles.emplace_back(trouble);
  }
  for (const std::string& name : survey.unknown_files) {
    table.line("not the store's, left alone: " + name);
    unknown.emplace_back(name);
  }
  table.json_only("troubles", std::move(troubles));
  table.json_only("unknown_files", std::move(unknown));
}

}  // namespace

std::string age_text(double seconds) {
  const auto s = static_cast<std::int64_t>(std::max(0.0, std::floor(seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min", s / 60);
  if (s < 86400) return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {} h", s / 86400, s / 3600 % 24);
}

std::string tenant_text(const std::string& tenant) { return tenant.empty() ? "(no keys)" : tenant; }

void store_rows(Table& table, const kvstore::Survey& survey, std::int64_t now_s) {
  state_rows(table, survey, now_s);
  bytes_rows(table, survey);
  class_rows(table, survey.status);
  tenant_rows(table, survey);
  trouble_rows(table, survey);
}

}  // namespace artery::cli
