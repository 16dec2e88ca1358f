#pragma once
// The lines of a Zstandard-compressed text file of the golden data. A pure function, any thread.

#include <filesystem>
#include <string>
#include <vector>

namespace artery::codec {

// Without their line breaks. A file that cannot be read or is damaged gives none: tests ask for
// some.
std::vector<std::string> read_zst_lines(const std::filesystem::path& path);

}  // namespace artery::codec
