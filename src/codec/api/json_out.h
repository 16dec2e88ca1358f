#pragma once
// Compact JSON, appended to a string piece by piece, spelled as serde_json spells it. No tree, no
// state: the caller writes brackets, commas and keys. Pure functions, any thread; linear.

#include <cstdint>
#include <string>
#include <string_view>

namespace artery::codec::api {

// The inside of a JSON string: \" \\ \b \f \n \r \t, other controls \u00xx in lower case, all else
// as it is (DEL and U+2028 too). Bytes that are no UTF-8 become U+FFFD, one per maximal subpart.
void put_json_inside(std::string& out, std::string_view text);

// The same between quotes.
void put_json_string(std::string& out, std::string_view text);

void put_json_int(std::string& out, std::int64_t value);
void put_json_uint(std::string& out, std::uint64_t value);

// The shortest digits that give the value back: 1.0, 0.00001, 1.5e-7, 1e+16, -0.0; NaN and
// infinities as null. Plain notation ends at 16 digits before the point (f32: 13) and 4 zeros after
// it (f32: 5).
void put_json_number(std::string& out, double value);
void put_json_number(std::string& out, float value);

inline void put_json_bool(std::string& out, bool value) { out += value ? "true" : "false"; }

}  // namespace artery::codec::api
