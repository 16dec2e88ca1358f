// The steps around the model of a tokenizer.json.

#include <algorithm>
#include <array>

#include "codec/hf/json_node.h"
#include "codec/hf/tokenizer_spec.h"

namespace artery::codec {
namespace {

constexpr int kNestingMax = 8;

Result<std::string> type_of(const JsonNode& node) {
  TRY(node.object());
  return std::string(TRY(node["type"].text()));
}

tl::unexpected<Error> unknown_type(
    const JsonNode& node, std::string_view type, std::string_view known
) {
  return fail(
      Code::kUnsupported,
      "{}: type '{}' is not supported by this build; it knows {}",
      node.place(),
      type,
      known
  );
}

// Calls visit(node) with `node`, or with what a Sequence holds under `list`.
template <typename Visit>
Result<> each_step(const JsonNode& node, std::string_view list, Visit visit, int depth = 0) {
  if (node.missing()) return {};
  if (TRY(type_of(node)) != "Sequence") return visit(node);
  if (depth == kNestingMax)
    return fail(Code::kBadFile, "{}: sequences nested too deeply", node.place());
  const JsonNode steps = node[list];
  const std::size_t count = TRY(steps.array())->size();
  if (count > kStepsMax)
    return fail(Code::kBadFile, "{}: {} steps; {} are the most", steps.place(), count, kStepsMax);
  for (std::size_t i = 0; i < count; ++i) TRY(each_step(steps.at(i), list, visit, depth + 1));
  return {};
}

Result<Regex> compile_at(const JsonNode& node, std::string_view pattern) {
  Result<Regex> regex = Regex::compile(pattern);
  if (!regex) return fail(regex.error().code, "{}: {}", node.place(), regex.error().message);
  return regex;
}

// {"String": "x"} or {"Regex": "x"}.
Result<TextPattern> read_pattern(const JsonNode& node) {
  TextPattern pattern;
  if (node["String"].is_string()) {
    pattern.literal = TRY(node["String"].text());
    return pattern;
  }
  const JsonNode regex = node["Regex"];
  if (!regex.is_string())
    return fail(Code::kBadFile, "{}: expected {{\"String\"}} or {{\"Regex\"}}", node.place());
  const std::string_view text = TRY(regex.text());
  pattern.regex = TRY(compile_at(regex, text));
  return pattern;
}

Result<NormalizeStep> read_normalize_step(const JsonNode& node) {
  using Kind = NormalizeStep::Kind;
  const std::string type = TRY(type_of(node));
  NormalizeStep step;
  constexpr std::array<std::string_view, 4> kForms{"NFC", "NFD", "NFKC", "NFKD"};
  if (const auto found = std::ranges::find(kForms, type); found != kForms.end()) {
    step.form = static_cast<NormalForm>(found - kForms.begin());
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    step.left = TRY(node["strip_left"].boolean(true));
    step.right = TRY(node["strip_right"].boolean(true));
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    step.content = TRY(node["prepend"].text());
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    step.pattern = TRY(read_pattern(node["pattern"]));
    step.content = TRY(node["content"].text());
  } else {
    return unknown_type(
        node,
        type,
        "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, Sequence"
    );
  }
  return step;
}

Result<SplitBehavior> read_behavior(const JsonNode& node) {
  constexpr std::array<std::string_view, 5> kNames{
      "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"
  };
  const std::string_view name = TRY(node.text());
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end())
    return fail(Code::kBadFile, "{}: unknown behavior '{}'", node.place(), name);
  return static_cast<SplitBehavior>(found - kNames.begin());
}

class CutReader {
 public:
  explicit CutReader(TokenizerSpec& spec) : spec_(spec) {}

  Result<> read(const JsonNode& node) {
    if (spec_.byte_level)
      return fail(
          Code::kUnsupported, "{}: a pre-tokenizer behind ByteLevel is not supported", node.place()
      );
    const std::string type = TRY(type_of(node));
    if (type == "Split") return split(node);
    if (type == "ByteLevel") return byte_level(node);
    if (type == "Metaspace") return metaspace(node);
    if (type == "Digits") {
      const bool alone = TRY(node["individual_digits"].boolean(false));
      push(
          {.kind = CutStep::Kind::kNumbers,
           .behavior = alone ? SplitBehavior::kIsolated : SplitBehavior::kContiguous}
      );
    } else if (type == "Punctuation") {
      CutStep step{.kind = CutStep::Kind::kMarks};
      if (!node["behavior"].missing()) step.behavior = TRY(read_behavior(node["behavior"]));
      push(std::move(step));
    } else if (type == "WhitespaceSplit") {
      push({.kind = CutStep::Kind::kWhiteSpace, .behavior = SplitBehavior::kRemoved});
    } else if (type == "Whitespace") {
      return whitespace(node);
    } else {
      return unknown_type(
          node,
          type,
          "Split, ByteLevel, Metaspace, Digits, Whitespace, WhitespaceSplit, Punctuation, Sequence"
      );
    }
    return {};
  }

 private:
  void push(CutStep step) { spec_.cuts.push_back(std::move(step)); }

  Result<> split(const JsonNode& node) {
    CutStep step;
    step.behavior = TRY(read_behavior(node["behavior"]));
    step.invert = TRY(node["invert"].boolean(false));
    // The rules match each character, so that nothing lies between two matches.
    const bool keeps_all = step.behavior == SplitBehavior::kIsolated ||
                           (step.behavior == SplitBehavior::kRemoved && step.invert);
    const JsonNode regex = node["pattern"]["Regex"];
    if (regex.is_string() && keeps_all) {
      const std::string_view text = TRY(regex.text());
      for (SplitRule rule :
           {SplitRule::kGpt2,
            SplitRule::kQwen2,
            SplitRule::kLlama3,
            SplitRule::kO200k,
            SplitRule::kTekken}) {
        if (patterns_of(rule).front() != text) continue;
        push({.kind = CutStep::Kind::kRule, .rule = rule});
        return {};
      }
    }
    step.pattern = TRY(read_pattern(node["pattern"]));
    push(std::move(step));
    if (regex.is_string() && step.behavior == SplitBehavior::kIsolated && !step.invert)
      note_pattern(TRY(regex.text()));
    return {};
  }

  // The three splits of DeepSeek V3 in a row are one rule.
  void note_pattern(std::string_view pattern) {
    const auto patterns = patterns_of(SplitRule::kDeepSeekV3);
    const bool follows = deepseek_seen_ == 0 || spec_.cuts.size() == deepseek_steps_ + 1;
    if (!follows || deepseek_seen_ >= patterns.size() || patterns[deepseek_seen_] != pattern)
      deepseek_seen_ = 0;
    if (patterns[deepseek_seen_] != pattern) return;
    ++deepseek_seen_;
    deepseek_steps_ = spec_.cuts.size();
    if (deepseek_seen_ < patterns.size()) return;
    spec_.cuts.resize(spec_.cuts.size() - patterns.size());
    push({.kind = CutStep::Kind::kRule, .rule = SplitRule::kDeepSeekV3});
  }

  Result<> byte_level(const JsonNode& node) {
    if (TRY(node["add_prefix_space"].boolean(true)))
      push({.kind = CutStep::Kind::kPrefix, .content = " "});
    if (TRY(node["use_regex"].boolean(true)))
      push({.kind = CutStep::Kind::kRule, .rule = SplitRule::kGpt2});
    spec_.byte_level = true;
    return {};
  }

  Result<> metaspace(const JsonNode& node) {
    const std::string replacement(TRY(node["replacement"].text()));
    std::string scheme;
    if (node["prepend_scheme"].missing()) {
      scheme = TRY(node["add_prefix_space"].boolean(true)) ? "always" : "never";
    } else {
      scheme = TRY(node["prepend_scheme"].text());
    }
    if (scheme != "always" && scheme != "first" && scheme != "never")
      return fail(
          Code::kBadFile, "{}: unknown prepend_scheme '{}'", node["prepend_scheme"].place(), scheme
      );
    push({.kind = CutStep::Kind::kReplace, .content = replacement});
    if (scheme != "never")
      push({.kind = CutStep::Kind::kPrefix, .only_first = scheme == "first", .content = replacement}
      );
    if (!TRY(node["split"].boolean(true))) return {};
    CutStep step{.behavior = SplitBehavior::kMergedWithNext};
    step.pattern.literal = replacement;
    push(std::move(step));
    return {};
  }

  // \w+|[^\w\s]+ of Rust's regular expressions; all else goes.
  Result<> whitespace(const JsonNode& node) {
    constexpr std::string_view kPattern =
        R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|)"
        R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";
    CutStep step{.behavior = SplitBehavior::kRemoved, .invert = true};
    step.pattern.regex = TRY(compile_at(node, kPattern));
    push(std::move(step));
    return {};
  }

  TokenizerSpec& spec_;
  std::size_t deepseek_seen_ = 0, deepseek_steps_ = 0;
};

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

Result<> read_decode_step(const JsonNode& node, bool& fused, TokenizerSpec& spec) {
  const std::string type = TRY(type_of(node));
  if (type == "ByteLevel") {
    spec.decodes_bytes = true;
  } else if (type == "ByteFallback") {
    // Pieces of byte tokens are their bytes.
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "Metaspace") {
    const bool never = node["prepend_scheme"].is_string() &&
                       TRY(node["prepend_scheme"].text()) == std::string_view("never");
    const bool legacy = TRY(node["add_prefix_space"].boolean(true));
    const std::string_view replacement = TRY(node["replacement"].text());
    if (replacement != kSpaceMark)
      return fail(
          Code::kUnsupported, "{}: only U+2581 can stand for a space", node["replacement"].place()
      );
    spec.decodes_spaces = true;
    spec.strips_space = !never && legacy;
  } else if (type == "Replace") {
    const JsonNode from = node["pattern"]["String"];
    const bool space = from.is_string() && TRY(from.text()) == kSpaceMark &&
                       TRY(node["content"].text()) == std::string_view(" ");
    if (!space)
      return fail(Code::kUnsupported, "{}: only U+2581 can be replaced, by a space", node.place());
    spec.decodes_spaces = true;
  } else if (type == "Strip") {
    const bool one_space = fused && TRY(node["content"].text()) == std::string_view(" ") &&
                           TRY(node["start"].index(kStepsMax)) <= 1 &&
                           TRY(node["stop"].index(kStepsMax)) == 0;
    if (!one_space)
      return fail(
          Code::kUnsupported,
          "{}: only one space at the start, behind Fuse, can be stripped",
          node.place()
      );
    spec.strips_space = TRY(node["start"].index(kStepsMax)) == 1;
  } else {
    return unknown_type(
        node, type, "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, Sequence"
    );
  }
  return {};
}

// The tokens before and behind the text of a TemplateProcessing.
Result<> read_template(const JsonNode& node, TokenizerSpec& spec) {
  const JsonNode single = node["single"];
  const std::size_t count = TRY(single.array())->size();
  bool behind = false;
  for (std::size_t i = 0; i < count; ++i) {
    const JsonNode item = single.at(i);
    if (item["Sequence"].is_object()) {
      if (behind) return fail(Code::kUnsupported, "{}: the text twice", single.place());
      behind = true;
      continue;
    }
    const std::string_view name = TRY(item["SpecialToken"]["id"].text());
    const JsonNode ids = node["special_tokens"][name]["ids"];
    TokenId& wanted = behind ? spec.eos : spec.bos;
    if (TRY(ids.array())->size() != 1 || wanted >= 0)
      return fail(
          Code::kUnsupported, "{}: only one token before and one behind the text", single.place()
      );
    wanted = static_cast<TokenId>(TRY(ids.at(0).index(kTokensMax)));
  }
  return {};
}

}  // namespace

Result<> read_normalizer(const JsonNode& node, TokenizerSpec& spec) {
  return each_step(node, "normalizers", [&](const JsonNode& step) -> Result<> {
    spec.normalizers.push_back(TRY(read_normalize_step(step)));
    return {};
  });
}

Result<> read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec) {
  CutReader reader(spec);
  return each_step(node, "pretokenizers", [&](const JsonNode& step) { return reader.read(step); });
}

Result<> read_decoder(const JsonNode& node, TokenizerSpec& spec) {
  if (node.missing())
    return fail(
        Code::kUnsupported,
        "{}: is missing; without one, texts cannot be put together",
        node.place()
    );
  bool fused = false;
  return each_step(node, "decoders", [&](const JsonNode& step) {
    return read_decode_step(step, fused, spec);
  });
}

Result<> read_post_processor(const JsonNode& node, TokenizerSpec& spec) {
  return each_step(node, "processors", [&](const JsonNode& step) -> Result<> {
    const std::string type = TRY(type_of(step));
    if (type == "ByteLevel") return {};  // it only moves offsets
    if (type == "TemplateProcessing") return read_template(step, spec);
    return unknown_type(step, type, "ByteLevel, TemplateProcessing, Sequence");
  });
}

}  // namespace artery::codec
