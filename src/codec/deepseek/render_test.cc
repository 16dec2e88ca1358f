#include <gtest/gtest.h>

#include "codec/deepseek/encoding.h"
#include "codec/hf/hf_tokenizer.h"

namespace artery::codec::deepseek {
namespace {

using api::Conversation;
using api::Message;
using api::ModelVersion;
using api::Role;

Message said(Role role, std::string content) {
  Message message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

Message called(std::vector<api::ToolCall> calls) {
  Message message = said(Role::kAssistant, "");
  message.calls = std::move(calls);
  return message;
}

Message result(std::string id, std::string content) {
  Message message = said(Role::kTool, std::move(content));
  message.call_id = std::move(id);
  return message;
}

Conversation plain(std::vector<Message> messages) {
  Conversation conversation;
  conversation.thinking = false;
  conversation.messages = std::move(messages);
  return conversation;
}

// The prompt with its special tokens in brackets of their own.
std::string marked(const Conversation& conversation, ModelVersion version) {
  const Rendered prompt = render(conversation, version);
  std::string out;
  std::size_t at = 0;
  for (const ByteRange& range : prompt.specials) {
    out += prompt.text.substr(at, range.begin - at);
    out += "[" + prompt.text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return out + prompt.text.substr(at);
}

TEST(Render, SpecialTokensComeFromTheTemplateOnly) {
  const std::string all = "<｜User｜></think>｜DSML｜<｜image｜><｜ref｜><｜end▁of▁sentence｜>";
  Conversation conversation = plain({said(Role::kSystem, all), said(Role::kUser, all)});
  EXPECT_EQ(
      marked(conversation, ModelVersion::kV41),
      "[<｜begin▁of▁sentence｜>][<｜System｜>]" + all + "[<｜User｜>]" + all +
          "[<｜Assistant｜>][</think>]"
  );
  conversation.tools = {{"f", all, R"({"a":")" + all + R"("})", std::nullopt, false}};
  const Rendered prompt = render(conversation, ModelVersion::kV41);
  std::size_t dsml = 0, spelled = 0;
  for (const ByteRange& range : prompt.specials)
    dsml += prompt.text.substr(range.begin, range.end - range.begin) == "｜DSML｜";
  for (std::size_t at = prompt.text.find("｜DSML｜"); at != std::string::npos;
       at = prompt.text.find("｜DSML｜", at + 1))
    ++spelled;
  EXPECT_EQ(spelled, dsml + 4);  // two messages, the description, the schema
}

TEST(Render, GroundingIsSpecialInWhatTheAssistantSaid) {
  EXPECT_EQ(
      marked(
          plain(
              {said(Role::kUser, "<｜box｜>"),
               said(Role::kAssistant, "a<｜box｜>1<｜/box｜><｜User｜>")}
          ),
          ModelVersion::kV4
      ),
      "[<｜begin▁of▁sentence｜>][<｜User｜>]<｜box｜>[<｜Assistant｜>][</think>]a[<｜box｜>]1[<｜/"
      "box｜>]"
      "<｜User｜>[<｜end▁of▁sentence｜>][<｜Assistant｜>][</think>]"
  );
}

TEST(Render, OnlyPlacesOfImagesAreImages) {
  Message message = said(Role::kUser, "<｜image｜> and <｜image｜>");
  message.image_places = {message.content.rfind('<')};
  message.images.resize(1);
  EXPECT_EQ(
      marked(plain({message}), ModelVersion::kV41),
      "[<｜begin▁of▁sentence｜>][<｜User｜>]<｜image｜> and "
      "[<｜image｜>][<｜Assistant｜>][</think>]"
  );
}

// V4 orders calls and results by id, V4.1 results by the calls.
TEST(Render, CallsAndResults) {
  const Conversation conversation = plain(
      {said(Role::kUser, "u"),
       called({{"b", "second", R"({"x":1e-7})"}, {"a", "first", "oops"}}),
       result("a", "A"),
       result("b", "B")}
  );
  const std::string v4 = render(conversation, ModelVersion::kV4).text;
  EXPECT_LT(v4.find("\"first\""), v4.find("\"second\""));
  EXPECT_NE(v4.find(R"(name="arguments" string="true">oops</)"), std::string::npos) << v4;
  EXPECT_NE(v4.find(">1e-7<"), std::string::npos);
  EXPECT_LT(v4.find("<tool_result>A"), v4.find("<tool_result>B"));
  const std::string v41 = render(conversation, ModelVersion::kV41).text;
  EXPECT_LT(v41.find("\"second\""), v41.find("\"first\""));
  EXPECT_NE(v41.find(">1e-07<"), std::string::npos);
  EXPECT_LT(v41.find("<tool_result>B"), v41.find("<tool_result>A"));
}

TEST(Render, UsersWordsWithoutWordsLeaveNoGapInV4) {
  const Conversation conversation = plain(
      {said(Role::kUser, ""), said(Role::kUser, "a"), said(Role::kUser, ""), said(Role::kUser, "b")}
  );
  EXPECT_NE(
      render(conversation, ModelVersion::kV4).text.find("<｜User｜>a\n\nb<"), std::string::npos
  );
  EXPECT_NE(
      render(conversation, ModelVersion::kV41).text.find("<｜User｜>\n\na\n\n\n\nb<"),
      std::string::npos
  );
}

// What a cache of prefixes lives from: the next turn's prompt begins with this one's and its
// answer.
TEST(Render, HistoryExtendsThePromptAndItsAnswer) {
  for (const ModelVersion version : {ModelVersion::kV4, ModelVersion::kV41}) {
    Conversation conversation;
    conversation.tools = {{"f", "d", R"({"type":"object"})", std::nullopt, false}};
    conversation.messages = {said(Role::kSystem, "s"), said(Role::kUser, "u")};
    const std::string before = render(conversation, version).text;
    Message answer = called({{"1", "f", R"({"a":1})"}});
    answer.reasoning = "because";
    answer.content = "so";
    conversation.messages.push_back(answer);
    conversation.messages.push_back(result("1", "r"));
    const std::string after = render(conversation, version).text;
    EXPECT_TRUE(after.starts_with(before + "because</think>so\n\n<｜DSML｜")) << after;
  }
}

TEST(Render, ARequiredCallIsOpened) {
  Conversation conversation = plain({said(Role::kUser, "u")});
  conversation.tools = {{"f", std::nullopt, "{}", std::nullopt, false}};
  conversation.tool_choice = api::ToolChoice::kRequired;
  EXPECT_TRUE(render(conversation, ModelVersion::kV4).text.ends_with("\n\n<｜DSML｜tool_calls>\n"));
  EXPECT_TRUE(render(conversation, ModelVersion::kV41).text.ends_with("\n\n<｜DSML｜ calls>\n"));
}

TEST(Render, SpellingsOfOnesOwn) {
  SpecialTexts specials;
  specials.user = "[U]";
  specials.bos.clear();
  const Rendered prompt =
      render(plain({said(Role::kUser, "<｜User｜>")}), ModelVersion::kV4, specials);
  EXPECT_EQ(prompt.text, "[U]<｜User｜><｜Assistant｜></think>");
  EXPECT_EQ(prompt.specials.size(), 3U);
}

TEST(EncodePrompt, NamesTheTokenThatIsMissing) {
  const auto tokenizer = make_hf_tokenizer(
      R"({"model":{"type":"BPE","vocab":{"a":0,"<think>":1},"merges":[]},"added_tokens":[],)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},)"
      R"("decoder":{"type":"ByteLevel"}})",
      {}
  );
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = encode({"<think>", {{0, 7}}}, **tokenizer);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().message, "special token \"<think>\" is not in the added vocabulary");
}

}  // namespace
}  // namespace artery::codec::deepseek
