#pragma once
// What stands between the name of a tag and its `>`: attributes, read leniently and byte by byte.
// Only the safe setting reads heads so; recipe looks for fixed texts. A value, one thread.

#include <cstdint>
#include <string>

namespace artery::codec::deepseek {

class TagHead {
 public:
  enum class Step : std::uint8_t {
    kMore,
    kNamed,  // the value of `name` is complete
    kEnd     // the byte was the `>`
  };
  // `in_name`: `name=` was read already.
  explicit TagHead(bool in_name = false);
  Step push(char c);
  // The head stops here, whatever it says.
  void stop() { end_attribute(); }
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  // string="false": the value is JSON. Anything else, and nothing: it is text.
  bool is_raw() const { return is_raw_; }

 private:
  enum class Part : std::uint8_t { kBetween, kKey, kBeforeValue, kQuoted, kBare };
  Step end_attribute();

  std::string key_, value_, name_;
  Part part_ = Part::kBetween;
  char quote_ = '"';
  bool has_value_ = false, has_name_ = false, is_raw_ = false;
};

}  // namespace artery::codec::deepseek
