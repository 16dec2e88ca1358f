#include <fmt/chrono.h>
#include <fmt/core.h>

#include <charconv>
#include <string_view>

#include "server/api/app.h"
#include "server/api/cache_report.h"
#include "server/api/json_writer.h"

namespace artery::server::api {
namespace {

void reply_state(
    const Call& call, int status, std::string_view state, std::string_view reason, double progress
) {
  JsonWriter out;
  out.begin_object().field("status", state);
  if (!reason.empty()) out.field("reason", reason);
  if (progress >= 0) out.field("progress", progress);
  out.end_object();
  http::Response response{status, {{"Content-Type", "application/json"}}, out.take()};
  if (status == 503) response.headers.emplace_back("Retry-After", "2");
  reply(call, std::move(response));
}

}  // namespace

void App::get_root(Call& call) {
  JsonWriter out;
  out.begin_object().field("name", "artery").field("version", config_.version).end_object();
  reply_json(call, 200, out.take());
}

void App::get_live(Call& call) { reply_state(call, 200, "live", {}, -1); }

void App::get_health(Call& call) {
  const auto now = live();
  if (!now) {
    reply_state(call, 503, "loading", "the model is loading", load_progress_);
    return;
  }
  const engine::Status status = now->serving->engine->status();
  const bool busy = status.running + status.waiting > 0;
  if (busy && status.last_step_age_s > config_.stuck_s) {
    const std::string reason = fmt::format(
        "the engine has not finished a step for {:.1f} s with {} requests running and {} waiting",
        status.last_step_age_s,
        status.running,
        status.waiting
    );
    reply_state(call, 503, "stuck", reason, -1);
    return;
  }
  reply_state(call, 200, "ok", {}, -1);
}

void App::get_ready(Call& call) {
  const auto now = live();
  if (!now) {
    reply_state(call, 503, "loading", "the model is loading", load_progress_);
  } else if (draining_ || now->serving->engine->status().draining) {
    reply_state(call, 503, "draining", "the server is shutting down", -1);
  } else {
    reply_state(call, 200, "ready", {}, -1);
  }
}

void App::get_version(Call& call) {
  JsonWriter out;
  out.begin_object().field("version", config_.version).end_object();
  reply_json(call, 200, out.take());
}

namespace {

void write_model(JsonWriter& out, const Live& live, const std::string& name) {
  out.begin_object().field("id", name).field("object", "model");
  out.field("created", live.created).field("owned_by", "artery");
  out.field("root", live.names.front()).key("parent").null();
  out.field("max_model_len", live.max_model_len);
  // Anthropic's names of the same.
  out.field("type", "model").field("display_name", name);
  out.field("created_at", fmt::format("{:%FT%TZ}", fmt::gmtime(live.created)));
  out.field("max_input_tokens", live.max_model_len).field("max_tokens", live.max_model_len);
  out.end_object();
}

// "%2F" and the like; a name with a slash may come either way.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

void App::get_models(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  JsonWriter out;
  out.begin_object().field("object", "list").key("data").begin_array();
  for (const std::string& name : now->names) write_model(out, *now, name);
  out.end_array().field("has_more", false);
  out.field("first_id", now->names.front()).field("last_id", now->names.back()).end_object();
  reply_json(call, 200, out.take());
}

void App::get_model(Call& call) {
  const auto now = live_or_refuse(call);
  if (!now) return;
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string name = percent_decoded(path_of(*call.request).substr(kPrefix.size()));
  const auto known = check_model(*now, name);
  if (!known) {
    reply_error(call, known.error());
    return;
  }
  JsonWriter out;
  write_model(out, *now, name);
  reply_json(call, 200, out.take());
}

void App::get_metrics(Call& call) {
  std::string text;
  if (const auto now = live()) {
    const engine::Engine& engine = *now->serving->engine;
    text = now->metrics->render(engine.status(), server_counts(), engine.store_status());
  } else {
    text = fmt::format(
        "# HELP artery:load_progress Share of the model that is loaded, 0 to 1.\n"
        "# TYPE artery:load_progress gauge\nartery:load_progress {}\n",
        load_progress_.load()
    );
  }
  reply(call, {200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, text});
}

void App::get_status(Call& call) {
  const auto now = live();
  JsonWriter out;
  out.begin_object();
  if (!now) {
    out.field("state", "loading").field("progress", load_progress_.load()).end_object();
    reply_json(call, 200, out.take());
    return;
  }
  const engine::Status s = now->serving->engine->status();
  out.field("state", draining_ || s.draining ? "draining" : "serving");
  out.field("model", now->names.front()).field("max_model_len", s.max_model_len);
  out.field("system_fingerprint", now->serving->system_fingerprint);
  out.field("numerics", now->serving->engine->numerics_id());
  out.field("running", s.running).field("waiting", s.waiting);
  out.field("pages_total", s.pages_total).field("pages_in_use", s.pages_in_use);
  out.field("pages_cached", s.pages_cached).field("prompt_tokens", s.prompt_tokens);
  out.field("window_pages_total", s.window_pages_total);
  out.field("window_pages_in_use", s.window_pages_in_use);
  out.field("window_pages_saved", s.window_pages_saved).field("windows_saved", s.windows_saved);
  out.field("windows_restored", s.windows_restored).field("windows_rebuilt", s.windows_rebuilt);
  out.field("window_rows", s.window_rows).field("windows_expired", s.windows_expired);
  out.field("windows_replayed", s.windows_replayed);
  out.field("window_rows_spared", s.window_rows_spared);
  out.field("windows_stored", s.windows_stored).field("windows_loaded", s.windows_loaded);
  out.field("windows_load_failed", s.windows_load_failed);
  out.field("cached_tokens", s.cached_tokens).field("generated_tokens", s.generated_tokens);
  out.field("preemptions", s.preemptions).field("aborted", s.aborted);
  out.field("rejected", s.rejected).field("steps", s.steps);
  out.field("last_step_age_s", s.last_step_age_s).field("step_s_max", s.step_s_max);
  out.field("busy_s", s.busy_s).field("sampling_s", s.sampling_s);
  out.field("step_gap_s", s.gap_s).field("idle_s", s.idle_s);
  out.field("idle_share", s.idle_share);
  out.field("cached_tokens_ram", s.hit_tokens_ram).field("cached_tokens_disk", s.hit_tokens_disk);
  out.key("kv_store");
  write_store_line(out, now->serving->engine->store_status());
  out.end_object();
  reply_json(call, 200, out.take());
}

}  // namespace artery::server::api
