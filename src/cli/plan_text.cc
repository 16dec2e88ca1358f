#include "cli/plan_text.h"

#include <boost/json.hpp>

#include "cli/report.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

std::string text_of(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string line(std::string_view name, std::int64_t bytes, std::string_view what) {
  return fmt::format("  {:<12}{:>11}  {}", name, text_of(bytes), what);
}

std::string pool_text(const MemoryPlan& plan) {
  std::string text =
      fmt::format("{}; {} a token", plan.text(), text_of(plan.global_bytes_per_token));
  if (plan.window_bytes_per_sequence > 0)
    text += fmt::format(", {} a sequence for its windows", text_of(plan.window_bytes_per_sequence));
  return text;
}

}  // namespace

std::string weights_text(const std::vector<model::WeightsOfType>& weights) {
  std::string text;
  for (const model::WeightsOfType& each : weights) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", tensor::name(each.type), text_of(each.bytes));
  }
  return text;
}

std::vector<std::string> plan_lines(const MemoryPlan& plan) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "memory plan: {} when all of it is used, of {}",
      text_of(plan.total_bytes()),
      text_of(plan.limit_bytes)
  ));
  lines.push_back(line("weights", plan.weight_bytes, weights_text(plan.weights)));
  lines.push_back(line("KV pool", plan.pool_bytes, pool_text(plan)));
  lines.push_back(
      line("step", plan.activation_bytes, fmt::format("activations of {} rows", plan.batch))
  );
  lines.push_back(
      line("logits", plan.logit_bytes, fmt::format("of {} sequences and prompts", plan.sequences))
  );
  lines.push_back(line("tables", plan.table_bytes, "of the context's positions"));
  if (plan.store_bytes > 0)
    lines.push_back(line("KV store", plan.store_bytes, "buffers and index (--kv-dir)"));
  lines.push_back(line("program", plan.process_bytes + plan.engine_bytes, "tokenizer, engine"));
  if (plan.load_bytes > 0)
    lines.push_back(line("loading", plan.load_bytes, "while weights are packed, not added"));
  return lines;
}

std::vector<std::string> fit_lines(const MemoryPlan& plan) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("  {:>9}  {:>16}  {:>11}", "context", "sequences fit", "with one"));
  for (const MemoryPlan::Fit& fit : plan.fits)
    lines.push_back(
        fmt::format("  {:>9}  {:>16}  {:>11}", fit.context, fit.sequences, text_of(fit.bytes))
    );
  return lines;
}

json::object plan_json(const MemoryPlan& plan) {
  json::array types;
  for (const model::WeightsOfType& each : plan.weights)
    types.push_back(json::object{
        {"type", std::string(tensor::name(each.type))},
        {"values", each.values},
        {"bytes", each.bytes},
    });
  json::array fits;
  for (const MemoryPlan::Fit& fit : plan.fits)
    fits.push_back(json::object{
        {"context", fit.context}, {"sequences", fit.sequences}, {"bytes_with_one", fit.bytes}
    });
  return {
      {"total_bytes", plan.total_bytes()},
      {"limit_bytes", plan.limit_bytes},
      {"headroom_bytes", plan.headroom_bytes},
      {"weight_bytes", plan.weight_bytes},
      {"weights_by_type", std::move(types)},
      {"kv_pool_bytes", plan.pool_bytes},
      {"kv_bytes_per_token", plan.global_bytes_per_token},
      {"window_bytes_per_sequence", plan.window_bytes_per_sequence},
      {"activation_bytes", plan.activation_bytes},
      {"logit_bytes", plan.logit_bytes},
      {"table_bytes", plan.table_bytes},
      {"kv_store_bytes", plan.store_bytes},
      {"program_bytes", plan.process_bytes},
      {"engine_bytes", plan.engine_bytes},
      {"load_bytes", plan.load_bytes},
      {"context", plan.context},
      {"max_num_seqs", plan.sequences},
      {"max_num_batched_tokens", plan.batch},
      {"fits", std::move(fits)},
  };
}

}  // namespace artery::cli
