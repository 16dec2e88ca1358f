#pragma once
// Conversations of the Messages and Responses APIs as chat templates of any model take them. Pure
// functions, any thread.

#include "base/result.h"
#include "codec/api/conversation.h"
#include "codec/prompt/chat_template.h"

namespace artery::server::api {

// Messages in OpenAI's form. What most templates cannot show is put into what they can: system
// turns at the start are joined into one, later ones become user turns marked as system reminders,
// user turns that follow each other are joined. An assistant turn that is a prefix is continued.
// Each turn's text depends on the turns before it only, so that a longer history begins with the
// shorter one's prompt; not where a turn adds tools, which templates show in one list at the start.
// kInvalidArgument naming the place: an image.
Result<codec::ChatInput> chat_input(const codec::api::Conversation& conversation);

}  // namespace artery::server::api
