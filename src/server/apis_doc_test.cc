// docs/apis.md is true: the example of each row, sent to the server, has the outcome that the row
// names.

#include <fstream>
#include <sstream>

#include "server/stream_fixture.h"

namespace artery::server {
namespace {

struct Row {
  std::string section, field, example, here;
  int line = 0;
};

std::string trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

// The cells of a table's line; none where it is no line of fields.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  if (!line.starts_with("| ")) return cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

std::vector<Row> rows() {
  std::ifstream file(std::string(ARTERY_SOURCE_DIR) + "/docs/apis.md");
  std::vector<Row> out;
  std::string section, line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.starts_with("## ")) section = line.substr(3);
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() < 4 || cells[0] == "field") continue;
    std::string example = cells[1];
    EXPECT_TRUE(example.starts_with('`') && example.ends_with('`')) << number;
    out.push_back({section, cells[0], example.substr(1, example.size() - 2), cells[2], number});
  }
  return out;
}

class ApisDoc : public StreamTest {
 protected:
  // `base` with the example's fields in place of its own.
  static std::string merged(std::string_view base, const std::string& example) {
    json::object body = json::parse(base).as_object();
    const json::value fields = json::parse("{" + example + "}");
    for (const auto& [name, value] : fields.as_object()) body[name] = value;
    return json::serialize(body);
  }

  void check(std::string_view section, std::string_view path, std::string_view base) {
    start();
    int checked = 0;
    for (const Row& row : rows()) {
      if (row.section != section) continue;
      SCOPED_TRACE("docs/apis.md:" + std::to_string(row.line) + " " + row.field);
      const TestResponse answer = post(path, merged(base, row.example));
      if (row.here == "refused") {
        EXPECT_TRUE(answer.status == 400 || answer.status == 404 || answer.status == 501)
            << answer.status << answer.body;
        EXPECT_TRUE(names_a_field(answer.body, row.example)) << answer.body;
      } else {
        EXPECT_TRUE(row.here == "honoured" || row.here == "ignored") << row.here;
        EXPECT_EQ(answer.status, 200) << answer.body;
      }
      ++checked;
    }
    EXPECT_GT(checked, 10);
  }

  static bool names_a_field(const std::string& answer, const std::string& example) {
    const json::value fields = json::parse("{" + example + "}");
    for (const auto& [name, value] : fields.as_object())
      if (answer.find(std::string(name)) != answer.npos) return true;
    return false;
  }
};

TEST_F(ApisDoc, ChatCompletions) {
  check(
      "Chat Completions",
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":9})"
  );
}

TEST_F(ApisDoc, Completions) {
  check("Completions", "/v1/completions", R"({"prompt":"hi","max_tokens":9})");
}

TEST_F(ApisDoc, Messages) {
  check(
      "Messages", "/v1/messages", R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":9})"
  );
}

TEST_F(ApisDoc, Responses) {
  check("Responses", "/v1/responses", R"({"input":"hi","max_output_tokens":9})");
}

}  // namespace
}  // namespace artery::server
