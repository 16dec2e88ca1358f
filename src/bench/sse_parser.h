#pragma once
// Server-sent events out of a body that arrives in pieces of any size: calls back with the data of
// each event (lines joined by a newline). Comments and other fields are passed over. WHATWG HTML,
// "Server-sent events". One thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace artery::bench {

class SseParser {
 public:
  // False when a line grows beyond `line_max` bytes: then the rest is of no use.
  template <typename OnData>
  bool push(std::string_view bytes, const OnData& on_data) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      line_.append(bytes.substr(0, end));
      if (line_.size() > kLineMax) return false;
      if (end == std::string_view::npos) break;
      bytes.remove_prefix(end + 1);
      take_line(on_data);
    }
    return true;
  }
  // An event that was not ended by an empty line.
  bool pending() const { return has_data_ || !line_.empty(); }

 private:
  static constexpr std::size_t kLineMax = std::size_t{16} << 20;

  template <typename OnData>
  void take_line(const OnData& on_data) {
    std::string_view line = line_;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) {
      if (has_data_) on_data(std::string_view(data_));
      data_.clear();
      has_data_ = false;
    } else if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (has_data_) data_ += '\n';
      data_ += line;
      has_data_ = true;
    }
    line_.clear();
  }

  std::string line_, data_;
  bool has_data_ = false;
};

}  // namespace artery::bench
