#pragma once
// How long a request wants its prefix kept: `cache_ttl`, Anthropic's `cache_control`, or what the
// conversation looks like. Pure functions, any thread.

#include <boost/json/fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "codec/prompt/chat_template.h"
#include "kvstore/types.h"
#include "server/api/json_reader.h"

namespace artery::server::api {

// What was asked for: the longest of `cache_ttl` and of every `cache_control` at the top, on
// messages, on their content parts and on tools, rounded up to a class; nullopt: nothing was.
// kInvalidArgument naming the field: not a time, or longer than 7 days.
Result<std::optional<kvstore::TtlClass>> read_cache_wish(const Fields& body);

// Of a chat that asks for nothing: with tools, tool messages or a third turn an agent (72 h), with
// a second one a chat (7 d), else a single question (1 h).
kvstore::TtlClass observed_class(const codec::ChatInput& input);

}  // namespace artery::server::api
