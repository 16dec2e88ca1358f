#pragma once
// Artery's codec as a library: requests of the three public APIs to prompts and token ids, and what
// a model writes back to events and answers, without an engine and without any tensor code.
// examples/prompt_codec.cc shows the whole way; the order of things is
//
//   api::convert -> deepseek::render, deepseek::encode -> (your engine) ->
//   deepseek::OutputProcessor -> api::chat_events, messages_events, responses_events (or
//   ..._response)
//
// for DeepSeek, and for other families
//
//   ChatTemplate::render, Tokenizer::encode -> (your engine) -> Detokenizer, OutputFormat::start
//
// Link artery::codec alone. Nothing here reads files, opens sockets or starts threads; what may be
// used from several threads says so in its header. Errors are Result values, never exceptions of
// ours. The names below live in artery::codec, artery::codec::api and artery::codec::deepseek.

#include "base/result.h"
#include "codec/api/convert.h"
#include "codec/api/generators.h"
#include "codec/api/output_sink.h"
#include "codec/deepseek/encoding.h"
#include "codec/deepseek/output_processor.h"
#include "codec/hf/hf_tokenizer.h"
#include "codec/infill.h"
#include "codec/prompt/chat_template.h"
#include "codec/stream/detokenizer.h"
#include "codec/stream/output_parser.h"
#include "codec/stream/stop_matcher.h"
#include "codec/tokenizer.h"
