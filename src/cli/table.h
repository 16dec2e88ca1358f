#pragma once
// Name and value, one a line, or the same as one JSON object: what `doctor` and `inspect` print.
// One thread.

#include <boost/json.hpp>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/result.h"

namespace artery::cli {

class Table {
 public:
  // `text` is for people, `value` for --json.
  void row(std::string_view key, std::string text, boost::json::value value) {
    text_ += fmt::format("{:<22}{}\n", key, text);
    std::string name(key);
    for (char& c : name)
      if (c == ' ' || c == '-') c = '_';
    json_[name] = std::move(value);
  }
  void row(std::string_view key, const std::string& text) {
    row(key, text, boost::json::value(text));
  }
  // A line for people only.
  void line(std::string_view text) { text_ += fmt::format("{}\n", text); }
  void json_only(std::string_view key, const std::string& text) {
    json_only(key, boost::json::value(text));
  }
  void json_only(std::string_view key, boost::json::value value) {
    json_[boost::json::string_view(key.data(), key.size())] = std::move(value);
  }

  void print(bool as_json) const {
    const std::string out = as_json ? boost::json::serialize(json_) + "\n" : text_;
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
  }

 private:
  std::string text_;
  boost::json::object json_;
};

}  // namespace artery::cli
