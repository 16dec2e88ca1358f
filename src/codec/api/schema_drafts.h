#pragma once
// What the meta-schemas of JSON Schema's drafts say of each keyword's value: json-schema.org,
// drafts 4, 6, 7, 2019-09 and 2020-12. Tables, any thread.

#include <span>
#include <string_view>

namespace artery::codec::api {

enum class KeywordRule {
  kAny,
  kText,
  kFlag,
  kNumber,
  kPositive,   // a number above 0
  kCount,      // a whole number, 0 at least
  kList,       // an array of anything
  kNames,      // an array of different strings
  kSomeNames,  // the same, one at least
  kNamesOf,    // an object of kNames
  kFlagsOf,    // an object of booleans
  kType,       // the name of a type, or several
  kRegex,      // a string; a regular expression where formats count
  kId,         // a string without a fragment
  kAnchor,     // a plain name
  kOldAnchor,  // the same of 2019-09
  kSchema,
  kSchemas,       // an array of one at least
  kSchemasOf,     // an object of schemas
  kPatternsOf,    // the same with regular expressions as keys
  kItems,         // a schema or kSchemas
  kFlagOrSchema,  // draft 4
  kDependencies   // an object of schemas or kNames (draft 4: kSomeNames)
};

struct Keyword {
  std::string_view name;
  KeywordRule rule;
};

// The keywords of one vocabulary. `by_value`: errors are looked for in the order of the schema at
// hand, always; otherwise in the table's order when the schema has more members than it.
struct Vocabulary {
  std::span<const Keyword> keywords;
  bool by_value = true;
};

struct SchemaDraft {
  enum class Id { k4, k6, k7, k2019, k2020 };
  Id id = Id::k2020;
  std::span<const Vocabulary> vocabularies;
  // Before 2019-09 formats are checked and what stands beside a reference does not count.
  bool is_old() const { return id <= Id::k7; }
};

const SchemaDraft& schema_draft(SchemaDraft::Id id);
// By the "$schema" of a schema: the newest for an unknown or missing name.
const SchemaDraft& schema_draft_named(std::string_view uri);
bool is_known_draft(std::string_view uri);

}  // namespace artery::codec::api
