#include "bench/workload.h"

#include <cmath>

namespace artery::bench {

void set_arrivals(std::vector<WorkRequest>& requests, double rate, double burstiness, Dice& dice) {
  for (WorkRequest& request : requests) request.arrival_s = 0;
  if (requests.empty() || std::isinf(rate)) return;
  std::gamma_distribution<double> gap(
      std::isinf(burstiness) ? 1 : burstiness,
      1 / (rate * (std::isinf(burstiness) ? 1 : burstiness))
  );
  double at = 0;
  for (WorkRequest& request : requests) {
    at += std::isinf(burstiness) ? 1 / rate : gap(dice);
    request.arrival_s = at;
  }
  const double wanted = static_cast<double>(requests.size()) / rate;
  if (at <= 0) return;
  for (WorkRequest& request : requests) request.arrival_s *= wanted / at;
}

}  // namespace artery::bench
