#pragma once
// One self-contained HTML page about a load run: figures, plots as inline SVG, configuration and
// errors. No script, nothing fetched. Pure function, any thread.

#include <string>

#include "bench/serve_report.h"

namespace artery::bench {

std::string html_report(
    const ServeReport& report, const ServeConfig& config, const LoadResult& result
);

}  // namespace artery::bench
