#include "cli/options.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "cli/config_file.h"

namespace artery::cli {
namespace {

constexpr double kIntegerMax = 9.0e18;

std::string environment_name(std::string_view flag) {
  std::string name = "ARTERY_";
  for (const char c : flag)
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off" || text.empty()) return false;
  return std::nullopt;
}

std::optional<double> parse_number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || errno != 0 || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_integer(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != 0 || errno != 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string text) {
  std::int64_t unit = 1;
  const std::string_view units = "KMGT";
  if (!text.empty() && (text.back() == 'B' || text.back() == 'b')) text.pop_back();
  if (!text.empty() && (text.back() == 'i')) text.pop_back();
  if (!text.empty()) {
    const char last = static_cast<char>(text.back() & ~0x20);
    if (const auto at = units.find(last); at != std::string_view::npos) {
      unit = std::int64_t{1} << (10 * (at + 1));
      text.pop_back();
    }
  }
  const std::optional<double> value = parse_number(text);
  if (!value || *value < 0 || *value * static_cast<double>(unit) > kIntegerMax) return std::nullopt;
  return static_cast<std::int64_t>(*value * static_cast<double>(unit));
}

namespace {

std::string range_text(const Flag& flag) {
  const bool low = flag.min > std::numeric_limits<double>::lowest();
  const bool high = flag.max < std::numeric_limits<double>::max();
  if (low && high && flag.min == flag.max) return fmt::format(", only {} is possible", flag.min);
  if (low && high) return fmt::format(" between {} and {}", flag.min, flag.max);
  if (low) return fmt::format(", {} or more", flag.min);
  return high ? fmt::format(", {} or less", flag.max) : "";
}

// Why `text` is not a value of `flag`; empty when it is one.
std::string objection(const Flag& flag, const std::string& text) {
  const auto in_range = [&](double v) { return v >= flag.min && v <= flag.max; };
  switch (flag.kind) {
    case FlagKind::kText:
      return "";
    case FlagKind::kChoice: {
      const std::string all = fmt::format("|{}|", flag.choices);
      const bool known = text.find('|') == std::string::npos &&
                         all.find(fmt::format("|{}|", text)) != std::string::npos;
      return known ? "" : fmt::format("must be one of {}", flag.choices);
    }
    case FlagKind::kInteger: {
      const auto v = parse_integer(text);
      if (v && in_range(static_cast<double>(*v))) return "";
      return "must be a whole number" + range_text(flag);
    }
    case FlagKind::kNumber: {
      const auto v = parse_number(text);
      return v && in_range(*v) ? "" : "must be a number" + range_text(flag);
    }
    case FlagKind::kBytes:
      return parse_bytes(text) ? "" : "must be a size such as 512M or 2G";
    case FlagKind::kSwitch:
      return parse_switch(text) ? "" : "must be true or false";
  }
  return "";
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

const char* where(Source source) {
  switch (source) {
    case Source::kFlag:
      return "";
    case Source::kEnvironment:
      return " (from the environment)";
    case Source::kFile:
      return " (from the --config file)";
    case Source::kDefault:
      return " (the default)";
  }
  return "";
}

struct Found {
  std::string text;
  Source source = Source::kDefault;
};

// Environment before file before default; the command line was looked at by the caller.
Found look_up(
    const Flag& flag,
    const std::map<std::string, std::string>& file,
    const char* (*environment)(const char* name)
) {
  const std::string name = environment_name(flag.name);
  if (const char* text = environment(name.c_str())) return {text, Source::kEnvironment};
  if (flag.negatable) {
    const std::string negated = environment_name(fmt::format("no-{}", flag.name));
    if (const char* text = environment(negated.c_str())) {
      const auto off = parse_switch(text);
      return {off ? (*off ? "false" : "true") : text, Source::kEnvironment};
    }
  }
  if (const auto it = file.find(std::string(flag.name)); it != file.end() && flag.in_config)
    return {it->second, Source::kFile};
  return {std::string(flag.fallback), Source::kDefault};
}

// A key that no verb has is a typing mistake; one of another verb's is fine, a file serves all.
Result<> check_keys(const std::map<std::string, std::string>& file, const std::string& path) {
  const std::vector<Verb> verbs = all_verbs();
  for (const auto& [key, text] : file) {
    const bool known = std::any_of(verbs.begin(), verbs.end(), [&](const Verb& verb) {
      return std::any_of(verb.flags.begin(), verb.flags.end(), [&](const Flag& flag) {
        return flag.name == key && flag.in_config;
      });
    });
    if (!known)
      return fail_field(
          "--config", "{}: unknown key {}; `artery serve --print-config` lists them", path, key
      );
  }
  return {};
}

}  // namespace

Result<Options> Options::make(
    const Verb& verb,
    const std::map<std::string, std::string>& given,
    const char* (*environment)(const char* name)
) {
  std::map<std::string, std::string> file;
  std::string path;
  if (const auto it = given.find("config"); it != given.end()) path = it->second;
  if (const char* text = environment("ARTERY_CONFIG"); path.empty() && text) path = text;
  if (!path.empty()) {
    file = TRY(read_config_file(path));
    TRY(check_keys(file, path));
  }
  Options options;
  options.verb_ = &verb;
  for (const Flag& flag : verb.flags) {
    Found found = look_up(flag, file, environment);
    if (const auto it = given.find(std::string(flag.name)); it != given.end())
      found = {it->second, Source::kFlag};
    const std::string why = objection(flag, found.text);
    if (!why.empty())
      return fail_field(
          fmt::format("--{}", flag.name), "{}{}, got '{}'", why, where(found.source), found.text
      );
    options.values_[std::string(flag.name)] = {std::move(found.text), found.source};
  }
  return options;
}

const Options::Value& Options::value(std::string_view name) const {
  const auto it = values_.find(name);
  CHECK(it != values_.end(), "verb {} has no flag {}", verb_->name, name);
  return it->second;
}

const std::string& Options::text(std::string_view name) const { return value(name).text; }

std::int64_t Options::integer(std::string_view name) const {
  const std::string& text = value(name).text;
  if (const auto plain = parse_integer(text)) return *plain;
  return parse_bytes(text).value_or(0);
}

double Options::number(std::string_view name) const {
  return parse_number(value(name).text).value_or(0);
}

bool Options::on(std::string_view name) const {
  return parse_switch(value(name).text).value_or(false);
}

std::vector<std::string> Options::list(std::string_view name) const {
  return split_commas(value(name).text);
}

bool Options::is_set(std::string_view name) const { return value(name).source != Source::kDefault; }

Result<std::string> Options::require(std::string_view name) const {
  const std::string& text = value(name).text;
  if (!text.empty()) return text;
  std::string shown(name);
  for (const Flag& flag : verb_->flags)
    if (flag.name == name && flag.positional) shown = flag.value_name;
  return fail_field(
      shown, "is missing: for example `{}`", verb_->example.substr(0, verb_->example.find('\n'))
  );
}

std::string Options::as_toml() const {
  std::string out = fmt::format(
      "# artery {}: effective values. Order: flag, environment (ARTERY_<NAME>), --config file, "
      "default.\n",
      verb_->name
  );
  for (const Flag& flag : verb_->flags) {
    if (!flag.in_config) continue;
    const std::string& text = value(flag.name).text;
    out += fmt::format("\n# {}", flag.help);
    if (!flag.choices.empty()) out += fmt::format(" ({})", flag.choices);
    out += '\n';
    const std::string key = underscored(flag.name);
    if (flag.secret) {
      out += text.empty() ? fmt::format("{} = \"\"\n", key) : fmt::format("# {} is set\n", key);
    } else if (flag.kind == FlagKind::kSwitch) {
      out += fmt::format("{} = {}\n", key, on(flag.name));
    } else if (flag.kind == FlagKind::kInteger || flag.kind == FlagKind::kNumber) {
      out += fmt::format("{} = {}\n", key, text);
    } else {
      out += fmt::format("{} = {}\n", key, toml_string(text));
    }
  }
  return out;
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    if (comma != 0) out.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return out;
}

Result<std::vector<int>> parse_int_list(
    std::string_view flag, std::string_view text, int min, int max
) {
  std::vector<int> out;
  for (const std::string& item : split_commas(text)) {
    const auto value = parse_integer(item);
    if (!value || *value < min || *value > max)
      return fail_field(
          std::string(flag), "'{}' is not a whole number between {} and {}", item, min, max
      );
    out.push_back(static_cast<int>(*value));
  }
  if (out.empty()) return fail_field(std::string(flag), "needs at least one number");
  return out;
}

}  // namespace artery::cli
