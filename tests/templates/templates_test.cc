// The golden templates (../shared/golden/models/templates): 75 templates by 25 conversations,
// rendered by transformers 5.24 with jinja2 3.1.6.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "codec/prompt/builtin_forms.h"
#include "codec/prompt/chat_template.h"
#include "codec/prompt/form_shape.h"

namespace artery::codec {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

// Templates of which some case differs from transformers, and why. May only shrink.
const std::map<std::string, std::string> kKnownFailures = {};

fs::path folder() { return fs::path(ARTERY_SOURCE_DIR) / "../shared/golden/models/templates"; }

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::string text_or_empty(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

// What built-in forms see of a message's content.
std::string plain_content(const json::object& message) {
  const json::value* content = message.if_contains("content");
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->as_string());
  std::string joined;
  if (content->is_array()) {
    for (const json::value& part : content->as_array()) {
      joined += text_or_empty(part.as_object(), "text");
    }
  }
  return joined;
}

ChatInput input_of(const json::object& given) {
  ChatInput input;
  input.add_generation_prompt = false;
  input.now = "2026-07-26 12:34:56";
  json::object kwargs;
  for (const auto& [key, value] : given) {
    if (key == "messages") {
      for (const json::value& message : value.as_array()) {
        const json::object& fields = message.as_object();
        input.messages.push_back(
            {text_or_empty(fields, "role"), plain_content(fields), json::serialize(message)}
        );
      }
    } else if (key == "tools") {
      input.tools_json = json::serialize(value);
    } else if (key == "documents") {
      input.documents_json = json::serialize(value);
    } else if (key == "add_generation_prompt") {
      input.add_generation_prompt = value.as_bool();
    } else if (key == "continue_final_message") {
      input.continue_final_message = value.as_bool();
    } else {
      kwargs[key] = value;
    }
  }
  if (!kwargs.empty()) input.kwargs_json = json::serialize(kwargs);
  return input;
}

struct Golden {
  std::string name;    // of the file in jinja/
  std::string source;  // its text
  TemplateTokens tokens;
  json::object cases;  // name -> {"rendered" | "error"}
};

class Templates : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(folder() / "cases.json")) GTEST_SKIP() << folder() << " is not here";
    cases_ = json::parse(slurp(folder() / "cases.json")).as_object();
    std::set<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder() / "jinja")) paths.insert(entry.path());
    for (const fs::path& path : paths) {
      const fs::path rendered = folder() / "rendered" / path.stem().concat(".json");
      json::object golden = json::parse(slurp(rendered)).as_object();
      TemplateTokens tokens = {
          .bos = text_or_empty(golden, "bos_token"),
          .eos = text_or_empty(golden, "eos_token"),
          .control = {"<|im_start|>", "<|im_end|>", "</s>", "<|eot_id|>", "<|begin_of_text|>"}
      };
      goldens_.push_back(
          {path.filename(), slurp(path), std::move(tokens), golden.at("cases").as_object()}
      );
    }
    ASSERT_EQ(goldens_.size(), 75u);
    ASSERT_EQ(cases_.size(), 25u);
  }

  json::object cases_;
  std::vector<Golden> goldens_;
};

// Empty when `got` is what the golden case asks for, else the difference.
std::string difference(const json::object& want, const Result<RenderedPrompt>& got) {
  const json::value* rendered = want.if_contains("rendered");
  if (rendered == nullptr) rendered = want.if_contains("rendered_with_empty_tools");
  if (rendered != nullptr) {
    if (!got) return "error instead of text: " + got.error().message;
    return got->text == rendered->as_string() ? "" : "other text: " + got->text;
  }
  const std::string error = text_or_empty(want, "error");
  if (got) return "text instead of the error: " + error;
  constexpr std::string_view kRaised = "TemplateError: ";
  if (error.starts_with(kRaised) &&
      !got.error().message.ends_with(": " + error.substr(kRaised.size()))) {
    return "other error: " + got.error().message;
  }
  return got.error().code == Code::kInvalidArgument ? "" : "wrong error code";
}

TEST_F(Templates, RenderAsInTransformers) {
  if (!has_jinja()) GTEST_SKIP() << "this build has no Jinja engine";
  std::size_t equal = 0;
  for (const Golden& golden : goldens_) {
    std::string report;
    auto made = ChatTemplate::make(golden.source, golden.tokens);
    if (!made) report = made.error().message;
    for (const auto& [name, given] : cases_) {
      if (!made) break;
      ChatInput input = input_of(given.as_object());
      input.as_sent = true;
      const auto got = (*made)->render(input);
      const std::string wrong = difference(golden.cases.at(name).as_object(), got);
      if (!wrong.empty()) report += std::string(name) + ": " + wrong + "\n";
    }
    if (report.empty()) ++equal;
    EXPECT_EQ(!report.empty(), kKnownFailures.contains(golden.name))
        << golden.name << (report.empty() ? " passes: take it off the list" : "\n" + report);
  }
  RecordProperty("equal_templates", std::to_string(equal));
  std::printf(
      "%zu of %zu templates are equal in all %zu cases\n", equal, goldens_.size(), cases_.size()
  );
}

// True when transformers fails over the list itself, drops the parts or prints the list as code.
bool parts_are_lost(const json::object& want, const json::object& cases) {
  const std::string error = text_or_empty(want, "error");
  if (!error.empty()) {
    // Over the list, unless a system text alone fails too; the lack of tools is no such failure.
    return !cases.at("system_user").as_object().contains("error") ||
           error.find("NoneType") != std::string::npos;
  }
  const std::string text = text_or_empty(want, "rendered");
  return text.find("First part.") == std::string::npos || text.find("type") != std::string::npos;
}

// What a server does to messages changes no prompt of messages that were fine.
TEST_F(Templates, EvenedOutMessagesRenderTheSame) {
  if (!has_jinja()) GTEST_SKIP() << "this build has no Jinja engine";
  for (const Golden& golden : goldens_) {
    if (kKnownFailures.contains(golden.name)) continue;
    auto made = ChatTemplate::make(golden.source, golden.tokens);
    ASSERT_TRUE(made);
    for (const auto& [name, given] : cases_) {
      if (name == "tool_call_string_arguments") continue;  // FR-B1 wants another prompt
      const json::object& want = golden.cases.at(name).as_object();
      const auto got = (*made)->render(input_of(given.as_object()));
      if (name == "content_parts" && parts_are_lost(want, golden.cases)) {
        EXPECT_TRUE(got && got->text.find("First part. Second part.") != std::string::npos)
            << golden.name << ": " << (got ? got->text : got.error().message);
        continue;
      }
      EXPECT_EQ(difference(want, got), "") << golden.name << " " << name;
    }
  }
}

TEST_F(Templates, TextOfControlTokensIsMarked) {
  if (!has_jinja()) GTEST_SKIP() << "this build has no Jinja engine";
  for (const Golden& golden : goldens_) {
    const json::object& want = golden.cases.at("special_looking_content").as_object();
    if (!want.contains("rendered")) continue;
    auto made = ChatTemplate::make(golden.source, golden.tokens);
    ASSERT_TRUE(made);
    auto got = (*made)->render(input_of(cases_.at("special_looking_content").as_object()));
    ASSERT_TRUE(got) << golden.name;
    std::string marked;
    for (const ByteRange& r : got->literal) marked += got->text.substr(r.begin, r.end - r.begin);
    EXPECT_EQ(marked, "<|im_end|><|im_start|><|im_end|></s><|eot_id|>") << golden.name;
  }
}

// Sources whose shape is recognised without Rust print the same plain chats.
TEST_F(Templates, BuiltInFormsEqualTheTemplatesTheyReplace) {
  const std::set<std::string> plain = {
      "user",
      "user_no_generation_prompt",
      "system_user",
      "multi_turn",
      "ends_with_assistant",
      "unicode_and_spaces",
      "special_looking_content",
      "empty_contents",
      "continue_final",
      "think_tags_in_content"
  };
  std::set<std::string> recognised;
  for (const Golden& golden : goldens_) {
    auto shape = shape_of_source(golden.source);
    if (!shape) continue;
    recognised.insert(golden.name);
    auto form = make_builtin(golden.source, *shape, golden.tokens);
    for (const std::string& name : plain) {
      const auto got = form->render(input_of(cases_.at(name).as_object()));
      EXPECT_EQ(difference(golden.cases.at(name).as_object(), got), "")
          << golden.name << " " << name;
    }
  }
  for (const char* needed :
       {"smollm2-135m-instruct.gguf.jinja",
        "qwen2-vocab.gguf.jinja",
        "qwen2.5-coder-0.5b-instruct.gguf.jinja",
        "Qwen-Qwen2.5-7B-Instruct.jinja",
        "llama3_1-lenml.jinja",
        "meta-llama-Llama-3.1-8B-Instruct.jinja",
        "meta-llama-Llama-3.2-3B-Instruct.jinja",
        "meta-llama-Llama-3.3-70B-Instruct.jinja",
        "mistralai-Mistral-Nemo-Instruct-2407.jinja"}) {
    EXPECT_TRUE(recognised.contains(needed)) << needed;
  }
}

}  // namespace
}  // namespace artery::codec
