#pragma once
// The messages of a Messages request, block by block: which blocks may stand where, how calls and
// results pair, what each becomes. Private to the Messages conversion; pure, any thread.

#include <span>
#include <string_view>
#include <vector>

#include "codec/api/convert_messages_read.h"
#include "codec/api/rules.h"

namespace artery::codec::api {

struct ConvertedBlocks {
  std::vector<Message> messages;
  // Of each message, the names of the tools it adds; views of the request.
  std::vector<std::vector<std::string_view>> additions;
};

Ruled<ConvertedBlocks> convert_blocks(
    std::span<const MessagesMessage> messages,
    std::span<const DeclaredTool> tools,
    ModelVersion version,
    const ConvertOptions& options
);

// Base64 as the official package takes it: any number of `=` at the end when some are due, nothing
// else between, no bits left over.
bool is_strict_base64(std::string_view text);

}  // namespace artery::codec::api
