#include "codec/api/responses_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "codec/api/json_out.h"
#include "codec/api/json_style.h"
#include "codec/api/json_tree.h"
#include "codec/api/logprob_json.h"
#include "codec/api/responses_response.h"

namespace artery::codec::api {

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  put_json_inside(out, text);
  return out;
}

constexpr std::string_view kFinalAnswer = "final_answer";
constexpr std::string_view kCommentary = "commentary";

}  // namespace

ResponsesStream::ResponsesStream(ResponsesAnswer answer, bool with_events)
    : answer_(std::make_shared<const ResponsesAnswer>(std::move(answer))),
      with_events_(with_events) {}

std::string_view ResponsesStream::status_name(Status status) {
  switch (status) {
    case Status::kInProgress:
      return "in_progress";
    case Status::kCompleted:
      return "completed";
    case Status::kIncomplete:
      return "incomplete";
  }
  return "";
}

void ResponsesStream::start() {
  if (started_) return;
  started_ = true;
  created_at_ = answer_->head.ids->unix_time_s();
  if (!with_events_) return;
  const std::string fields = R"("response":)" + response();
  emit("response.created", fields);
  emit("response.in_progress", fields);
}

void ResponsesStream::reasoning(std::string_view text) {
  start();
  if (!is_heard(text)) return;
  if (open_.kind != Kind::kReasoning) open_text_item(Kind::kReasoning, "rs_");
  has_reasoned_ = has_reasoned_ || !text.empty();
  delta("response.reasoning_text.delta", text, {});
}

void ResponsesStream::content(std::string_view text, std::span<const TokenLogprob> logprobs) {
  start();
  if (!is_heard(text)) return;
  if (open_.kind != Kind::kMessage) open_text_item(Kind::kMessage, "msg_");
  std::string entries;
  append_logprobs(entries, logprobs, answer_->faithfulness);
  if (!entries.empty()) {
    if (!open_.logprobs.empty()) open_.logprobs += ',';
    open_.logprobs += entries;
  }
  delta("response.output_text.delta", text, entries);
}

void ResponsesStream::begin_call(std::string_view name, std::string_view id) {
  start();
  if (finished_) return;
  close(Status::kCompleted, kCommentary);
  std::string call_id(id);
  if (id.empty()) {
    const bool empty_thoughts = answer_->thinking && !has_reasoned_;
    call_id = fmt::format(
        "call_{:02}_{}{}", calls_, empty_thoughts ? "ET_" : "", answer_->head.ids->call_tail()
    );
  }
  ++calls_;
  const bool is_patch =
      (answer_->has_apply_patch && name == "apply_patch") ||
      std::ranges::find(answer_->custom_tools, name) != answer_->custom_tools.end();
  const bool is_search = answer_->has_tool_search && name == "tool_search";
  const Kind kind = is_patch ? Kind::kPatch : is_search ? Kind::kToolSearch : Kind::kFunction;
  open(kind, is_patch ? "ctc_" : is_search ? "tsc_" : "fc_");
  open_.call_head = R"("call_id":")" + escaped(call_id) + '"';
  if (is_search) {
    open_.call_head += R"(,"execution":"client")";
  } else {
    const auto in_namespace = answer_->namespaces.find(name);
    const bool is_split = !is_patch && in_namespace != answer_->namespaces.end();
    open_.name = escaped(is_split ? std::string_view(in_namespace->second.second) : name);
    open_.call_head += R"(,"name":")" + open_.name + '"';
    if (is_split)
      open_.call_head += R"(,"namespace":")" + escaped(in_namespace->second.first) + '"';
  }
  if (!with_events_) return;
  emit(
      "response.output_item.added",
      fmt::format(
          R"("item":{},"output_index":{})", item_json(Status::kInProgress, {}, false), open_.index
      )
  );
}

void ResponsesStream::arguments(std::string_view text) {
  if (!is_heard(text)) return;
  switch (open_.kind) {
    case Kind::kFunction:
      return delta("response.function_call_arguments.delta", text, {});
    case Kind::kPatch: {
      std::string input;
      open_.patch.feed(text, input);
      return patch_delta(input);
    }
    case Kind::kToolSearch:
      open_.plain_text += text;
      return;
    default:
      return;
  }
}

void ResponsesStream::patch_delta(std::string_view text) {
  if (!text.empty()) delta("response.custom_tool_call_input.delta", text, {});
}

void ResponsesStream::finish(const AnswerFinish& finish) {
  start();
  if (finished_) return;
  const bool is_cut =
      finish.reason == FinishReason::kLength || finish.reason == FinishReason::kContentFilter;
  const Status status = is_cut ? Status::kIncomplete : Status::kCompleted;
  close(status, kFinalAnswer);
  finished_ = true;
  response_ = response_json(status, &finish);
  if (!with_events_) return;
  emit(is_cut ? "response.incomplete" : "response.completed", R"("response":)" + response_);
}

std::vector<ApiEvent> ResponsesStream::take() { return std::exchange(events_, {}); }

std::string ResponsesStream::response() const {
  return finished_ ? response_ : response_json(Status::kInProgress, nullptr);
}

void ResponsesStream::open(Kind kind, std::string_view id_prefix) {
  open_ = Item();
  open_.kind = kind;
  open_.index = items_++;
  open_.id = fmt::format("{}{}_{}", id_prefix, escaped(answer_->head.id), open_.index);
}

void ResponsesStream::open_text_item(Kind kind, std::string_view id_prefix) {
  close(Status::kCompleted, kFinalAnswer);
  open(kind, id_prefix);
  if (!with_events_) return;
  emit(
      "response.output_item.added",
      fmt::format(
          R"("item":{},"output_index":{})",
          item_json(Status::kInProgress, kFinalAnswer, false),
          open_.index
      )
  );
  emit(
      "response.content_part.added",
      fmt::format(R"("content_index":0,{},"part":{})", place(), text_part_json(false))
  );
}

void ResponsesStream::close(Status status, std::string_view phase) {
  if (open_.kind == Kind::kNone) return;
  if (open_.kind == Kind::kPatch) {
    std::string rest;
    open_.patch.finish(rest);
    patch_delta(rest);
  }
  if (open_.kind == Kind::kToolSearch) {
    const auto tree = JsonTree::parse(open_.plain_text);
    if (!tree || !tree->root().is_object()) status = Status::kIncomplete;
    if (status == Status::kCompleted) append_json(open_.text, tree->root());
  }
  const std::string item = item_json(status, phase, true);
  if (with_events_) {
    if (open_.kind == Kind::kReasoning || open_.kind == Kind::kMessage) {
      close_text_events();
    } else if (open_.kind != Kind::kToolSearch) {
      close_call_events();
    }
    emit(
        "response.output_item.done",
        fmt::format(R"("item":{},"output_index":{})", item, open_.index)
    );
  }
  if (!output_.empty()) output_ += ',';
  output_ += item;
  open_ = Item();
}

void ResponsesStream::close_text_events() {
  const bool is_message = open_.kind == Kind::kMessage;
  const std::string logprobs =
      is_message ? fmt::format(R"("logprobs":[{}],)", open_.logprobs) : std::string();
  emit(
      is_message ? "response.output_text.done" : "response.reasoning_text.done",
      fmt::format(
          R"("content_index":0,"item_id":"{}",{}"output_index":{})", open_.id, logprobs, open_.index
      ),
      fmt::format(R"(,"text":"{}")", open_.text)
  );
  emit(
      "response.content_part.done",
      fmt::format(R"("content_index":0,{},"part":{})", place(), text_part_json(true))
  );
}

void ResponsesStream::close_call_events() {
  if (open_.kind == Kind::kPatch) {
    return emit(
        "response.custom_tool_call_input.done",
        fmt::format(R"("input":"{}",{})", open_.text, place())
    );
  }
  // The official SDKs' type of this event has the name.
  const std::string name = safe() ? fmt::format(R"(,"name":"{}")", open_.name) : std::string();
  emit(
      "response.function_call_arguments.done",
      fmt::format(R"("arguments":"{}",{})", open_.text, place()),
      name
  );
}

void ResponsesStream::delta(
    std::string_view event, std::string_view text, std::string_view logprobs
) {
  const std::size_t begin = open_.text.size();
  put_json_inside(open_.text, text);
  if (!with_events_) return;
  const std::string_view added = std::string_view(open_.text).substr(begin);
  std::string fields;
  fields.reserve(added.size() + logprobs.size() + open_.id.size() + 96);
  if (open_.kind == Kind::kReasoning || open_.kind == Kind::kMessage) {
    fields += R"("content_index":0,)";
  }
  fields += R"("delta":")";
  fields += added;
  fields += R"(","item_id":")";
  fields += open_.id;
  fields += '"';
  if (open_.kind == Kind::kMessage) {
    fields += R"(,"logprobs":[)";
    fields += logprobs;
    fields += ']';
  }
  fields += R"(,"output_index":)";
  fields += std::to_string(open_.index);
  emit(event, fields);
}

std::string ResponsesStream::item_json(Status status, std::string_view phase, bool with_content)
    const {
  const std::string_view state = status_name(status);
  const auto head = [&](std::string_view type) {
    return fmt::format(R"({{"type":"{}","id":"{}","status":"{}",)", type, open_.id, state);
  };
  const std::string_view text = with_content ? std::string_view(open_.text) : std::string_view();
  switch (open_.kind) {
    case Kind::kReasoning:
      return fmt::format(
          R"({}"content":[{}],"summary":[],"encrypted_content":"{}-{}"}})",
          head("reasoning"),
          with_content ? text_part_json(true) : std::string(),
          escaped(answer_->head.id),
          open_.index
      );
    case Kind::kMessage:
      return fmt::format(
          R"({}"role":"assistant","phase":"{}","content":[{}]}})",
          head("message"),
          phase,
          with_content ? text_part_json(true) : std::string()
      );
    case Kind::kFunction:
      return fmt::format(
          R"({}{},"arguments":"{}"}})", head("function_call"), open_.call_head, text
      );
    case Kind::kPatch:
      return fmt::format(R"({}{},"input":"{}"}})", head("custom_tool_call"), open_.call_head, text);
    case Kind::kToolSearch:
      return fmt::format(
          R"({}{},"arguments":{}}})",
          head("tool_search_call"),
          open_.call_head,
          text.empty() ? "{}" : text
      );
    case Kind::kNone:
      break;
  }
  return {};
}

std::string ResponsesStream::text_part_json(bool with_content) const {
  const std::string_view text = with_content ? std::string_view(open_.text) : std::string_view();
  if (open_.kind == Kind::kReasoning) {
    return fmt::format(R"({{"type":"reasoning_text","text":"{}"}})", text);
  }
  return fmt::format(
      R"({{"type":"output_text","annotations":[],"logprobs":[{}],"text":"{}"}})",
      with_content ? std::string_view(open_.logprobs) : std::string_view(),
      text
  );
}

std::string ResponsesStream::response_json(Status status, const AnswerFinish* finish) const {
  ResponseFacts facts;
  facts.status = status_name(status);
  facts.created_at = started_ ? created_at_ : answer_->head.ids->unix_time_s();
  facts.output = output_;
  if (open_.kind != Kind::kNone) {
    if (!facts.output.empty()) facts.output += ',';
    facts.output += item_json(Status::kInProgress, kFinalAnswer, true);
  }
  if (finish != nullptr) {
    facts.completed_at = answer_->head.ids->unix_time_s();
    facts.finish = finish;
  }
  return responses_object(*answer_, facts);
}

void ResponsesStream::emit(
    std::string_view event, std::string_view fields, std::string_view after_number
) {
  ApiEvent out;
  out.name = event;
  out.data.reserve(event.size() + fields.size() + after_number.size() + 56);
  out.data += R"({"type":")";
  out.data += event;
  out.data += R"(",)";
  out.data += fields;
  out.data += R"(,"sequence_number":)";
  out.data += std::to_string(sequence_++);
  out.data += after_number;
  out.data += '}';
  events_.push_back(std::move(out));
}

std::string ResponsesStream::place() const {
  return fmt::format(R"("item_id":"{}","output_index":{})", open_.id, open_.index);
}

}  // namespace artery::codec::api
