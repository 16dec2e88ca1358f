#pragma once
// A format that reads reasoning, content and calls with one machine of its own, in place of the
// parts that output_parser.h puts together. One thread at a time.

#include <memory>
#include <string_view>

#include "codec/stream/output_events.h"

namespace artery::codec {

class OutputReader {
 public:
  virtual ~OutputReader() = default;
  virtual std::unique_ptr<OutputReader> clone() const = 0;  // a snapshot
  // Whole characters of ordinary tokens.
  virtual void push_text(std::string_view text, OutputEvents& out) = 0;
  // One token of the vocabulary's added part, whole.
  virtual void push_added(std::string_view token, OutputEvents& out) = 0;
  virtual void finish(OutputEvents& out) = 0;
};

}  // namespace artery::codec
