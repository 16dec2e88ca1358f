#pragma once
// A batch of questions under one setting, and the check that every one of them got its reference
// answer. One thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "subject.h"

namespace artery::exactness {

struct Member {
  std::size_t question = 0;
  int priority = 0;
  int cancel_after = -1;  // tokens received; -1: never
};

struct Load {
  Setting setting;
  std::vector<Member> members;
  // Prompts answered with one token before the members come: what the prefix cache knows by then.
  std::vector<std::vector<TokenId>> before;
  std::function<void()> settle = {};  // called then, if there is one
  bool reset = false;                 // and it is emptied after that
  // So many of the members come when the first ones ran two steps.
  std::size_t late = 0;
};

struct Outcome {
  std::vector<std::string> differences;  // empty: all answers are the reference's
  engine::Status status;                 // after the last one ended
  std::int64_t cached_tokens = 0;        // of the members
};

// Pages that the longest member, or all of them together, need.
std::int64_t pages_of_longest(const Subject& subject, const Load& load);
std::int64_t pages_of_all(const Subject& subject, const Load& load);

Outcome run(Subject& subject, const Load& load);

}  // namespace artery::exactness
