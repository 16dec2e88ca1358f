#include "cli/args.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

namespace artery::cli {
namespace {

constexpr int kUsageError = 2;

// One word of the command line as CLI11 knows it: `_` in a long name becomes `-`, and llama.cpp's
// two-letter options become our long ones.
std::string normalized(const std::string& word) {
  if (word == "-np") return "--max-num-seqs";
  if (word == "-ngl") return "--gpu-layers";
  if (word.size() < 3 || word.compare(0, 2, "--") != 0) return word;
  std::string out = word;
  const auto end = std::find(out.begin(), out.end(), '=');
  std::replace(out.begin(), end, '_', '-');
  return out;
}

std::string description(const Flag& flag) {
  std::string text(flag.help);
  if (!flag.choices.empty()) text += fmt::format(" ({})", flag.choices);
  if (!flag.fallback.empty() && flag.kind != FlagKind::kSwitch)
    text += fmt::format(" [{}]", flag.fallback);
  return text;
}

std::string option_names(const Flag& flag) {
  std::string names = fmt::format("--{}", flag.name);
  if (flag.letter != 0) names = fmt::format("-{},{}", flag.letter, names);
  return names;
}

// Where CLI11 puts what it reads. Addresses must not move while it parses.
struct Slots {
  std::map<std::string, std::string> text;
  std::map<std::string, std::string> positional;
  bool version = false;
  bool print_config = false;
};

void add_flag(CLI::App& app, const Flag& flag, Slots& slots) {
  const std::string name(flag.name);
  std::string names = option_names(flag);
  if (flag.kind == FlagKind::kSwitch) {
    if (flag.negatable) names += fmt::format(",!--no-{}", flag.name);
    app.add_flag(names, slots.text[name], description(flag));
    return;
  }
  CLI::Option* option = app.add_option(names, slots.text[name], description(flag));
  option->type_name(flag.value_name.empty() ? "TEXT" : std::string(flag.value_name));
  constexpr int kWordsMax = 16;
  if (flag.many) option->expected(1, kWordsMax)->join(' ');
  if (flag.positional)
    app.add_option(std::string(flag.value_name), slots.positional[name], description(flag))
        ->type_name("");
}

void add_verb(CLI::App& app, const Verb& verb, Slots& slots) {
  for (const Flag& flag : verb.flags) add_flag(app, flag, slots);
  app.add_option("--config", slots.text["config"], "TOML file with these flags as keys")
      ->type_name("FILE");
  app.add_flag("--print-config", slots.print_config, "print the effective values as TOML and stop");
  app.add_flag("--version", slots.version, "print version, commit, compiler, ISA and numerics");
  app.footer(fmt::format(
      "Each flag is also ARTERY_<NAME> in the environment.\n\nExample:\n  {}",
      [&] {
        std::string text(verb.example);
        for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
          text.insert(at + 1, "  ");
        return text;
      }()
  ));
}

// Without CLI11's note on a flag that turns another off, "--no-kv-store{false}".
class HelpText : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    constexpr std::string_view kNote = "{false}";
    for (std::size_t at = 0; (at = name.find(kNote, at)) != std::string::npos;)
      name.erase(at, kNote.size());
    return name;
  }
};

// "bench model" becomes `model` below `bench`, which is made at first sight.
CLI::App* find_or_add(CLI::App& root, const Verb& verb) {
  const std::string name(verb.name);
  const std::size_t space = name.find(' ');
  if (space == std::string::npos) return root.add_subcommand(name, std::string(verb.summary));
  const std::string parent_name = name.substr(0, space);
  CLI::App* parent = nullptr;
  for (CLI::App* app : root.get_subcommands([](CLI::App*) { return true; }))
    if (app->get_name() == parent_name) parent = app;
  if (parent == nullptr) {
    const bool is_store = parent_name == "kv";
    parent = root.add_subcommand(
        parent_name,
        is_store                    ? "care of a KV store's folder"
        : parent_name == "bench"    ? "measurements"
        : parent_name == "simulate" ? "recorded workloads under a virtual clock"
                                    : ""
    );
    parent->require_subcommand(1);
    parent->footer(fmt::format("Each explains itself: `artery {} --help`.\n\nExample:", verb.name));
  }
  const std::string_view example = verb.example.substr(0, verb.example.find('\n'));
  parent->footer(fmt::format("{}\n  {}", parent->get_footer(), example));
  return parent->add_subcommand(name.substr(space + 1), std::string(verb.summary));
}

// What stood on the command line, by flag name; a positional and its flag are the same thing.
std::map<std::string, std::string> collect(CLI::App& app, const Verb& verb, const Slots& slots) {
  std::map<std::string, std::string> given;
  for (const Flag& flag : verb.flags) {
    const std::string name(flag.name);
    if (app.count("--" + name) > 0) given[name] = slots.text.at(name);
    const auto it = slots.positional.find(name);
    if (it != slots.positional.end() && !it->second.empty()) given[name] = it->second;
  }
  if (app.count("--config") > 0) given["config"] = slots.text.at("config");
  return given;
}

// CLI11 lists unexpected arguments last one first; here they stand as they were typed.
std::string what_was_wrong(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
  std::string text = "not expected:";
  for (const std::string& argument : app.remaining(true)) text += " " + argument;
  return text;
}

// The verb that was typed below `at` and is none; empty: something else is wrong.
std::string unknown_verb(const CLI::App& root, const CLI::App& at) {
  const auto below = at.get_subcommands([](const CLI::App*) { return true; });
  const std::vector<std::string> words = root.remaining(true);
  if (below.empty() || words.empty() || words.front().starts_with('-')) return {};
  std::string text = fmt::format("unknown: {}; there are:", words.front());
  for (const CLI::App* app : below) text += " " + app->get_name();
  return text;
}

Parsed failed(CLI::App& app, const CLI::ParseError& error) {
  Parsed out;
  if (error.get_exit_code() == 0) {  // help
    out.exit_code = app.exit(error, std::cout, std::cerr);
    return out;
  }
  std::string path = app.get_name();
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  const std::string unknown = unknown_verb(app, *at);
  const std::string wrong = unknown.empty() ? what_was_wrong(app, error) : unknown;
  std::cerr << "artery: error: " << wrong << "\nSee `" << path << " --help`.\n";
  out.exit_code = kUsageError;
  return out;
}

}  // namespace

Parsed parse_args(const std::vector<Verb>& verbs, int argc, const char* const* argv) {
  CLI::App root(
      "Artery: LLM inference and serving on CPUs, with answers that do not depend on what "
      "else runs.",
      "artery"
  );
  root.formatter(std::make_shared<HelpText>());
  root.require_subcommand(0, 1);  // after one, a word such as "kv" is a file's name, not a verb
  Slots root_slots;
  root.add_flag("--version", root_slots.version, "print version, commit, compiler, ISA, numerics");
  root.footer("Each verb explains itself: `artery serve --help`.");
  std::vector<Slots> slots(verbs.size());
  std::vector<CLI::App*> apps;
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    apps.push_back(find_or_add(root, verbs[i]));
    add_verb(*apps[i], verbs[i], slots[i]);
  }
  std::vector<std::string> words;  // CLI11 takes them last first
  for (int i = argc - 1; i > 0; --i) words.push_back(normalized(argv[i]));
  try {
    root.parse(words);
  } catch (const CLI::ParseError& error) {
    return failed(root, error);
  }
  Parsed out;
  out.version = root_slots.version;
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    if (!apps[i]->parsed()) continue;
    out.verb = &verbs[i];
    out.given = collect(*apps[i], verbs[i], slots[i]);
    out.version = out.version || slots[i].version;
    out.print_config = slots[i].print_config;
  }
  if (out.verb == nullptr && !out.version) {
    std::cerr << root.help();
    out.exit_code = kUsageError;
  }
  return out;
}

}  // namespace artery::cli
