#pragma once
// A memory plan as lines for people and as JSON. Pure, any thread.

#include <boost/json/object.hpp>

#include <string>
#include <vector>

#include "cli/memory_plan.h"

namespace artery::cli {

// "Q4_K 0.70 GiB, Q6_K 0.34 GiB".
std::string weights_text(const std::vector<model::WeightsOfType>& weights);

// The sums, largest part first: what `serve` logs at start and `doctor` prints.
std::vector<std::string> plan_lines(const MemoryPlan& plan);

// Context lengths and how many sequences of each fit.
std::vector<std::string> fit_lines(const MemoryPlan& plan);

// Bytes; docs/memory.md has the names.
boost::json::object plan_json(const MemoryPlan& plan);

}  // namespace artery::cli
