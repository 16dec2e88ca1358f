#pragma once
// Result<T>: how every fallible function of Artery reports failure. No exceptions of our own; a
// library's exceptions are caught at the thread's main (house rule). Member names are those of
// std::expected.

#include <fmt/core.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace artery {

// What kind of thing went wrong. `server/api/errors` maps it to an HTTP status, `cli` to an exit
// code.
enum class Code {
  kInvalidArgument,  // the caller's value is wrong; `Error::field` names it            HTTP 400,
                     // exit 2
  kBadFile,          // a model, store or input file is malformed                       exit 3
  kUnsupported,    // well-formed, but this build cannot do it                        HTTP 400/501,
                   // exit 3
  kContextLength,  // prompt longer than the context                                  HTTP 400
  kUnauthorized,   //                                                                 HTTP 401
  kNotFound,     // file, model or path does not exist                              HTTP 404, exit 1
  kTooLarge,     // body, header or item beyond its limit                           HTTP 413
  kOverloaded,   // a bounded queue is full; try later                              HTTP 429
  kUnavailable,  // loading, draining, peer gone                                    HTTP 503
  kCancelled,    // the client went away or cancel() was called
  kDeadlineExceeded,  // HTTP 504
  kOutOfMemory,       // memory or disk does not suffice                                 exit 4
  kIo,                // the operating system refused                                    exit 1
  kInternal,  // a bug of ours                                                   HTTP 500, exit 1
};

struct Error {
  Code code = Code::kInternal;
  std::string message;  // one sentence: what was wrong, where, and what to do
  std::string field;    // the request field or flag at fault, empty when none
};

template <typename T = void>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;

  // The value, moved out. Only after a check.
  T take() { return std::move(*this).value(); }
};

template <>
class [[nodiscard]] Result<void> : public tl::expected<void, Error> {
 public:
  using tl::expected<void, Error>::expected;
  void take() {}
};

// return fail(Code::kBadFile, "{}: truncated at byte {}", path, offset);
template <typename... Args>
tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(text, std::forward<Args>(args)...), {}});
}

// The same, naming the request field or flag that is wrong.
template <typename... Args>
tl::unexpected<Error> fail_field(
    std::string field, fmt::format_string<Args...> text, Args&&... args
) {
  return tl::unexpected<Error>(Error{
      Code::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...), std::move(field)
  });
}

// auto file = TRY(File::open(path));   TRY(file.sync());
// Leaves the enclosing function with the error, else yields the value. Do not nest one TRY inside
// another.
#define TRY(expr)                                                                           \
  __extension__({                                                                           \
    auto try_result = (expr);                                                               \
    if (!try_result) return tl::unexpected<::artery::Error>(std::move(try_result).error()); \
    try_result.take();                                                                      \
  })

}  // namespace artery
