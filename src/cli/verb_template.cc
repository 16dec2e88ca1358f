// `artery template`: renders chat templates, JSON Lines in and out.

#include <ctime>
#include <iostream>

#include "cli/json_lines.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/serving.h"
#include "cli/verbs.h"

namespace artery::cli {
namespace json = boost::json;
namespace {

// Text of a message's content: a string, or its text parts joined.
std::string content_text(const json::value* content) {
  if (content == nullptr) return "";
  if (content->is_string()) return std::string(content->get_string());
  std::string joined;
  if (!content->is_array()) return joined;
  for (const json::value& part : content->get_array()) {
    const json::object* fields = part.if_object();
    const json::value* text = fields == nullptr ? nullptr : fields->if_contains("text");
    if (text != nullptr && text->is_string()) joined += std::string_view(text->get_string());
  }
  return joined;
}

Result<std::vector<codec::ChatMessage>> read_messages(const JsonLine& line) {
  const json::value* list = line.find("messages");
  if (list == nullptr) return fail_field("messages", "is missing");
  if (!list->is_array())
    return fail_field("messages", "must be an array, got {}", kind_name(*list));
  std::vector<codec::ChatMessage> messages;
  for (const json::value& item : list->get_array()) {
    const json::object* fields = item.if_object();
    if (fields == nullptr)
      return fail_field(
          "messages", "item {} is {}, expected an object", messages.size(), kind_name(item)
      );
    const json::value* role = fields->if_contains("role");
    if (role == nullptr || !role->is_string())
      return fail_field("messages", "item {} has no role", messages.size());
    messages.push_back({
        std::string(role->get_string()),
        content_text(fields->if_contains("content")),
        json::serialize(*fields),
    });
  }
  return messages;
}

Result<std::string> json_text(const JsonLine& line, std::string_view name, json::kind kind) {
  const json::value* value = line.find(name);
  if (value == nullptr) return std::string();
  if (value->kind() != kind)
    return fail_field(
        std::string(name),
        "must be {}, got {}",
        kind == json::kind::object ? "an object" : "an array",
        kind_name(*value)
    );
  return json::serialize(*value);
}

// `now`, "2026-07-26 12:34:56"; empty when it is absent, which is the present.
Result<std::string> read_now(const JsonLine& line) {
  const std::string now = TRY(line.text("now", ""));
  if (now.empty()) return now;
  std::tm time{};
  const char* rest = strptime(now.c_str(), "%Y-%m-%d %H:%M:%S", &time);
  if (rest == nullptr || *rest != '\0')
    return fail_field("now", "must be a time such as 2026-07-26 12:34:56, got '{}'", now);
  return now;
}

// The chosen template with the tokens of a line; the last one is kept, as all lines tend to agree.
class Renderer {
 public:
  Renderer(std::unique_ptr<model::ModelFile> file, std::string chosen, codec::TemplateTokens tokens)
      : file_(std::move(file)), chosen_(std::move(chosen)), tokens_(std::move(tokens)) {}

  Result<json::object> answer(const JsonLine& line) {
    codec::TemplateTokens tokens = tokens_;
    tokens.bos = TRY(line.text("bos_token", tokens.bos));
    tokens.eos = TRY(line.text("eos_token", tokens.eos));
    TRY(compile(std::move(tokens)));
    codec::ChatInput input;
    input.messages = TRY(read_messages(line));
    input.tools_json = TRY(json_text(line, "tools", json::kind::array));
    input.documents_json = TRY(json_text(line, "documents", json::kind::array));
    input.kwargs_json = TRY(json_text(line, "kwargs", json::kind::object));
    input.add_generation_prompt = TRY(line.boolean("add_generation_prompt", true));
    input.continue_final_message = TRY(line.boolean("continue_final_message", false));
    input.now = TRY(read_now(line));
    input.as_sent = true;  // as transformers' apply_chat_template; the server evens shapes out
    const codec::RenderedPrompt prompt = TRY(template_->render(input));
    return json::object{{"text", prompt.text}};
  }

 private:
  Result<> compile(codec::TemplateTokens tokens) {
    if (template_ != nullptr && tokens.bos == bos_ && tokens.eos == eos_) return {};
    bos_ = tokens.bos;
    eos_ = tokens.eos;
    template_ = nullptr;
    template_ = TRY(load_chat_template(file_.get(), chosen_, std::move(tokens)));
    return {};
  }

  std::unique_ptr<model::ModelFile> file_;
  std::string chosen_;
  codec::TemplateTokens tokens_;
  std::string bos_, eos_;
  std::shared_ptr<const codec::ChatTemplate> template_;
};

Result<int> run_template(const Options& options) {
  const std::string path = options.text("model");
  const std::string chosen = options.text("template");
  if (path.empty() && chosen.empty())
    return fail_field("MODEL", "is missing: give a model file, or a template with --template FILE");
  std::unique_ptr<model::ModelFile> file;
  codec::TemplateTokens tokens;
  if (!path.empty()) {
    file = TRY(open_model_file(path));
    const std::shared_ptr<const codec::Tokenizer> tokenizer = TRY(load_tokenizer(*file));
    tokens = template_tokens(*tokenizer);
  }
  // Without its template no line has an answer; a template with a mistake is each line's error.
  const Result<std::shared_ptr<const codec::ChatTemplate>> found =
      load_chat_template(file.get(), chosen, tokens);
  if (!found && found.error().code == Code::kNotFound) return tl::unexpected<Error>(found.error());
  Renderer renderer(std::move(file), chosen, std::move(tokens));
  TRY(with_input(options.text("input"), [&](std::istream& in) {
    return for_each_line(in, std::cout, [&](const JsonLine& line) {
      return renderer.answer(line);
    });
  }));
  return kExitDone;
}

}  // namespace

Verb template_verb() {
  return {
      "template",
      "messages to prompt text by a chat template: JSON Lines in and out",
      R"(echo '{"messages":[{"role":"user","content":"Hi"}]}' | artery template model.gguf)"
      "\nartery template --template chat.jinja --input requests.jsonl",
      {
          model_flag(),
          {.name = "template",
           .help = "a Jinja file or a built-in form instead of the model's own",
           .value_name = "FILE",
           .in_config = false},
          {.name = "input",
           .help = "JSON Lines file; empty or -: standard input",
           .value_name = "FILE",
           .in_config = false},
      },
      run_template,
  };
}

}  // namespace artery::cli
