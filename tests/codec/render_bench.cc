// How long a request takes to become token ids, on one core: conversion, rendering, tokens.
//   render_bench TOKENIZER.json REQUEST.json chat|messages|responses [RUNS]
// One line of JSON, the best of the runs in milliseconds of processor time.
// tests/codec/render_bench.py makes the request and runs the official package beside it.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include "codec/api/convert.h"
#include "codec/deepseek/encoding.h"
#include "codec/hf/hf_tokenizer.h"

namespace {

using artery::codec::api::ConvertOptions;

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

double now_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

struct Times {
  double convert = 1e9, render = 1e9, encode = 1e9, both = 1e9, first = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto api = argc > 3 ? artery::codec::api::api_of(argv[3]) : std::nullopt;
  if (!api) {
    fmt::print(stderr, "render_bench TOKENIZER.json REQUEST.json chat|messages|responses [RUNS]\n");
    return 2;
  }
  const auto tokenizer = artery::codec::make_hf_tokenizer(read_file(argv[1]), {});
  const std::string body = read_file(argv[2]);
  const auto request = artery::codec::api::convert(*api, body, ConvertOptions());
  if (!tokenizer || !request) {
    fmt::print(stderr, "{}\n", tokenizer ? request.error().message : tokenizer.error().message);
    return 1;
  }
  Times best;
  std::size_t tokens = 0, bytes = 0;
  const int runs = argc > 4 ? std::atoi(argv[4]) : 20;
  for (int run = 0; run < runs; ++run) {
    const double start = now_ms();
    const auto converted = artery::codec::api::convert(*api, body, ConvertOptions());
    const double read = now_ms();
    const auto prompt =
        artery::codec::deepseek::render(converted->conversation, converted->version);
    const double rendered = now_ms();
    const auto ids = artery::codec::deepseek::encode(prompt, **tokenizer);
    const double end = now_ms();
    if (!ids) {
      fmt::print(stderr, "{}\n", ids.error().message);
      return 1;
    }
    tokens = ids->size();
    bytes = prompt.text.size();
    best.convert = std::min(best.convert, read - start);
    best.render = std::min(best.render, rendered - read);
    best.encode = std::min(best.encode, end - rendered);
    if (run == 0) best.first = end - read;
    best.both = std::min(best.both, end - read);
  }
  fmt::print(
      "{{\"tokens\":{},\"bytes\":{},\"convert_ms\":{:.3f},\"render_ms\":{:.3f},\"encode_ms\":{:.3f}"
      ","
      "\"render_and_encode_ms\":{:.3f},\"first_ms\":{:.3f}}}\n",
      tokens,
      bytes,
      best.convert,
      best.render,
      best.encode,
      best.both,
      best.first
  );
  return 0;
}
