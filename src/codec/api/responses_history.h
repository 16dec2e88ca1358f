#pragma once
// A Responses conversation that the server keeps (previous_response_id, item_reference): what of a
// request and its answer is stored, and the next request with it put in front. JSON texts in, JSON
// texts out; nothing is stored here. Pure functions, any thread; linear in the texts.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "codec/api/convert.h"

namespace artery::codec::api {

// What a stored response keeps beside its response object: the items of its whole input, those of
// the responses before it included, as a JSON array. Instructions and tools are not part of it: the
// API takes both from each request alone.
tl::expected<JsonText, ConvertError> input_items(std::string_view body);

// The items that an answer adds to the history: its output without log probabilities, and without
// calls that were cut off (nobody can answer them). `response`: a response object.
tl::expected<JsonText, ConvertError> output_items(std::string_view response);

// The body's previous_response_id; empty when it names none, or is no object.
std::string previous_response_id(std::string_view body);

// The item of a JSON array that has the id, as JSON.
std::optional<JsonText> item_with_id(std::string_view items, std::string_view id);

// An item by its id as JSON, or nothing.
using ItemLookup = std::function<std::optional<JsonText>(std::string_view id)>;

struct History {
  JsonText input = "[]", output = "[]";  // of the response that the request continues
};

// `body` with the history's items in front of its own. References to items of the history go, for
// they stand there already; others are replaced by what `lookup` finds. Refused with status 404
// where it finds nothing; of kParse when `body` is no object.
tl::expected<std::string, ConvertError> continued_body(
    const History& history, std::string_view body, const ItemLookup& lookup
);

// The response that an item's id was made in ("msg_resp_1_0": "resp_1"), to look it up.
std::optional<std::string_view> response_of_item(std::string_view item_id);

}  // namespace artery::codec::api
