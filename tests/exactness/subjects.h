#pragma once
// The models the exactness tests run on, loaded once a process: tiny random ones of every weight
// type and head grouping, tiny checkpoints of the families with sliding windows, and SmolLM2 where
// its file is. One thread.

#include <string>
#include <vector>

#include "subject.h"

namespace artery::exactness {

// Sanitizer builds are ten times slower: they leave SmolLM2 to the others.
bool sanitizer_build();
// ARTERY_TEST_LONG=1.
bool run_long_tests();

const std::vector<std::string>& tiny_names();
constexpr const char* kSmolLM2 = "smollm2";

// With its questions. kNotFound: the weights are not here; kUnavailable: left out of this build.
Result<Subject*> find_subject(const std::string& name);

// Path of a GGUF in $ARTERY_MODELS or build/models; may not exist.
std::string weights_path(const std::string& file);

// Of this machine, slowest first.
std::vector<tensor::Isa> isas();

}  // namespace artery::exactness
