// A request to DeepSeek's prompt, and a model's answer to the events of an API, without a model:
//
//   prompt_codec chat|messages|responses REQUEST.json [TOKENIZER.json] < ANSWER.txt
//
// Prints the prompt, with a tokenizer its ids, and then what a client would get for the answer on
// standard input: the events of a stream where the request asks for one, else the response.

#include <artery/codec.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

namespace {

using artery::Result;
namespace codec = artery::codec;
namespace api = artery::codec::api;
namespace deepseek = artery::codec::deepseek;

Result<std::string> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return artery::fail(artery::Code::kNotFound, "{}: cannot be opened", path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<api::ConvertedRequest> read_request(const std::string& api_name, const std::string& path) {
  const auto which = api::api_of(api_name);
  if (!which) return artery::fail_field("API", "{}: chat, messages or responses", api_name);
  api::ConvertOptions options;
  options.rules = api::Rules::kServing;  // any model name; the version is what `options` says
  auto converted = api::convert(*which, TRY(read_file(path)), options);
  if (!converted) return artery::fail_field("request", "{}", converted.error().body());
  return std::move(*converted);
}

Result<> print_prompt(const api::ConvertedRequest& request, const codec::Tokenizer* tokenizer) {
  const deepseek::Rendered prompt = deepseek::render(request.conversation, request.version);
  std::printf("prompt: %s\n", prompt.text.c_str());
  if (tokenizer == nullptr) return {};
  const auto ids = TRY(deepseek::encode(prompt, *tokenizer));
  std::printf("ids:");
  for (const artery::TokenId id : ids) std::printf(" %d", id);
  std::printf("\n");
  return {};
}

api::AnswerHead head_of(const api::ConvertedRequest& request) {
  api::AnswerHead head;
  head.id = "example";
  head.model = request.model;
  return head;
}

constexpr auto kSafe = api::Faithfulness::kSafe;

api::ChatAnswer chat_answer(const api::ConvertedRequest& request) {
  api::ChatAnswer answer;
  answer.head = head_of(request);
  answer.thinking = request.conversation.thinking;
  answer.include_usage = request.beyond.include_usage;
  answer.faithfulness = kSafe;
  return answer;
}

api::MessagesAnswer messages_answer(const api::ConvertedRequest& request) {
  return {head_of(request), request.conversation.thinking, {}, kSafe};
}

api::ResponsesAnswer responses_answer(const api::ConvertedRequest& request) {
  api::ResponsesAnswer answer;
  answer.head = head_of(request);
  answer.thinking = request.conversation.thinking;
  answer.namespaces = request.namespaces;
  answer.custom_tools = request.custom_tools;
  answer.echo = request.echo;
  answer.faithfulness = kSafe;
  return answer;
}

std::unique_ptr<api::EventGenerator> events_of(const api::ConvertedRequest& request) {
  if (request.api == api::Api::kChat) return api::chat_events(chat_answer(request));
  if (request.api == api::Api::kMessages) return api::messages_events(messages_answer(request));
  return api::responses_events(responses_answer(request));
}

std::unique_ptr<api::ResponseBuilder> response_of(const api::ConvertedRequest& request) {
  if (request.api == api::Api::kChat) return api::chat_response(chat_answer(request));
  if (request.api == api::Api::kMessages) return api::messages_response(messages_answer(request));
  return api::responses_response(responses_answer(request));
}

// The answer as one chunk of text; a server pushes what comes, text or token ids, as it comes.
Result<> parse(const api::ConvertedRequest& request, std::string_view text, api::OutputSink& sink) {
  deepseek::OutputProcessor processor({request.parsing, deepseek::SpecialTexts(), kSafe}, nullptr);
  TRY(processor.text(text, 1, sink));
  return processor.end(sink);
}

Result<> print_answer(const api::ConvertedRequest& request, std::string_view text) {
  if (!request.stream) {
    const auto response = response_of(request);
    TRY(parse(request, text, *response));
    std::printf("response: %s\n", response->json().c_str());
    return {};
  }
  const auto events = events_of(request);
  TRY(parse(request, text, *events));
  for (const api::ApiEvent& event : events->take()) {
    if (!event.name.empty()) std::printf("event: %s\n", event.name.c_str());
    std::printf("data: %s\n\n", event.data.c_str());
  }
  return {};
}

Result<> run(int argc, char** argv) {
  const api::ConvertedRequest request = TRY(read_request(argv[1], argv[2]));
  std::unique_ptr<codec::Tokenizer> tokenizer;
  if (argc > 3) {
    const std::string text = TRY(read_file(argv[3]));
    tokenizer = TRY(codec::make_hf_tokenizer(text, {}));
  }
  TRY(print_prompt(request, tokenizer.get()));
  const std::string answer(std::istreambuf_iterator<char>(std::cin), {});
  return answer.empty() ? Result<>() : print_answer(request, answer);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(
        stderr,
        "usage: %s chat|messages|responses REQUEST.json [TOKENIZER.json] < ANSWER.txt\n",
        argv[0]
    );
    return 2;
  }
  const auto done = run(argc, argv);
  if (done) return 0;
  std::fprintf(stderr, "error: %s\n", done.error().message.c_str());
  return 1;
}
