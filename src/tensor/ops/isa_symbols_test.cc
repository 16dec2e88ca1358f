// An object built with ISA flags must not define a function that the linker could pick for code
// that runs on any machine: no weak and no unique symbol, and no global one outside its namespace.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>

namespace {

std::string run(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> buffer;
  while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), n);
  }
  pclose(pipe);
  return text;
}

// What `nm` says that breaks the rule, one symbol a line.
std::string offenders(const std::string& nm_text, const std::string& space) {
  std::istringstream in(nm_text);
  std::string bad;
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find(' ');
    if (at != 16) continue;  // undefined symbols and headings have no address
    const char kind = line[17];
    const std::string symbol = line.substr(19);
    const bool weak = kind == 'W' || kind == 'V' || kind == 'u' || kind == 'w' || kind == 'v';
    const bool global = kind >= 'A' && kind <= 'Z';
    if (weak || (global && symbol.rfind("artery::tensor::ops::" + space + "::", 0) != 0)) {
      bad += line + "\n";
    }
  }
  return bad;
}

TEST(IsaSymbols, TheRuleFindsAWeakSymbol) {
  const std::string text =
      "0000000000000000 D artery::tensor::ops::avx2::kTable\n"
      "0000000000000010 t artery::tensor::ops::avx2::(anonymous namespace)::add()\n"
      "                 U memcpy\n";
  EXPECT_EQ(offenders(text, "avx2"), "");
  EXPECT_NE(offenders(text, "avx512"), "");
  EXPECT_NE(
      offenders(text + "0000000000000020 W std::max<int>(int const&, int const&)\n", "avx2"), ""
  );
}

TEST(IsaSymbols, ObjectsExportOnlyTheirTable) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers add symbols of their own";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "sanitizers add symbols of their own";
#endif
#endif
  if (run("command -v nm").empty()) GTEST_SKIP() << "no nm on this machine";
  for (const std::string isa : {"avx2", "avx512", "avx512_bf16"}) {
    const std::string object = std::string(ARTERY_KERNEL_OBJECTS) + "/build_" + isa + ".cc.o";
    const std::string text = run("nm -C '" + object + "'");
    ASSERT_NE(text.find("artery::tensor::ops::" + isa + "::kTable"), std::string::npos)
        << "no table in " << object << ": " << text.substr(0, 200);
    EXPECT_EQ(offenders(text, isa), "") << object;
  }
}

}  // namespace
