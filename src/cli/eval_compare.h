#pragma once
// The report of `eval --compare A,B`: lines as `eval` reads them, one table or JSON object out. One
// thread.

#include <boost/json.hpp>

#include <istream>
#include <string>

#include "base/result.h"
#include "cli/hit_compare.h"

namespace artery::cli {

// Each line is compared at its "hit", or without one at half of its prompt and at the last page
// boundary; "force" tokens follow the prompt; "greedy" (32) tokens are generated each way.
class CompareReport {
 public:
  CompareReport(std::array<HitSetting, 2> settings, std::int64_t vocab_size);

  // Bad lines are counted and named; the run goes on.
  void add_all(std::istream& in, HitComparer& comparer);
  // kInvalidArgument: no line could be compared.
  Result<> check() const;
  std::string text() const;
  boost::json::object json() const;

 private:
  struct Each {
    boost::json::value id;
    HitDifference got;
  };
  Result<> add(std::string_view line, boost::json::value& id, HitComparer& comparer);

  const std::array<HitSetting, 2> settings_;
  const std::int64_t vocab_size_;
  std::vector<Each> each_;
  std::vector<boost::json::object> errors_;
};

}  // namespace artery::cli
