#include "tools/common/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/library/base/nearest.h"

namespace commpool::cli {

namespace {

// An error that lists the subcommands, where the words name none or an unknown one; else empty.
std::string MissingSubcommand(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  const auto known = command->get_subcommands([](const CLI::App*) { return true; });
  if (known.empty()) return "";
  std::string all;
  std::vector<std::string> names;
  for (const CLI::App* one : known) names.push_back(one->get_name());
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  if (command->remaining_size() == 0) return command->get_name() + ": say what to do; there are " + all;
  const std::string written = command->remaining().front();
  const std::vector<std::string_view> words(names.begin(), names.end());
  return command->get_name() + ": there is no " + written + ", the nearest is " +
         std::string(internal::Nearest(written, words)) + "; there are " + all;
}

// Such as "commpool bench hot".
std::string FullName(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return (parent == nullptr ? "" : FullName(*parent) + " ") + app.get_name();
}

int ExitCodeOf(const CLI::App& app, const Result<int>& done) {
  if (done.ok()) return *done;
  const bool refused = done.status().code() == StatusCode::kNotSupported;
  const std::string& message = done.status().message();
  if (!message.empty()) {
    // In one piece, because mpirun mixes its own lines and those of ranks.
    (refused ? std::cout : std::cerr) << FullName(app) + (refused ? " refused: " : ": ") + message + '\n';
  }
  return refused ? kRefused : kFailed;
}

}  // namespace

Option& Option::Between(int least, int most) { return option_->check(CLI::Range(least, most)), *this; }
Option& Option::Between(double least, double most) { return option_->check(CLI::Range(least, most)), *this; }
Option& Option::Positive() { return option_->check(CLI::PositiveNumber), *this; }
Option& Option::OneOf(const std::vector<std::string>& words) { return option_->check(CLI::IsMember(words)), *this; }
Option& Option::Checked(std::function<std::string(const std::string&)> why_not) {
  return option_->check(std::move(why_not)), *this;
}
// Otherwise the next word would become a value too.
Option& Option::SeparatedByCommas() { return option_->delimiter(',')->allow_extra_args(false), *this; }
Option& Option::Required() { return option_->required(), *this; }
Option& Option::Hidden() { return option_->group(""), *this; }
Option& Option::Called(const std::string& name) { return option_->type_name(name), *this; }
Option& Option::ShowPreset() { return option_->capture_default_str(), *this; }

Command Command::Add(const std::string& name, const std::string& help) {
  return Command(*app_->add_subcommand(name, help), *exit_code_);
}

void Command::NeedSubcommand() { app_->require_subcommand(1); }

void Command::Footer(const std::string& text) { app_->footer(text); }

void Command::Do(std::function<Result<int>()> action) {
  app_->callback(
      [action = std::move(action), app = app_, exit_code = exit_code_] { *exit_code = ExitCodeOf(*app, action()); });
}

void Command::DoWithRest(std::function<Result<int>(const std::vector<std::string>&)> action) {
  app_->prefix_command();
  Do([action = std::move(action), app = app_]() -> Result<int> {
    std::vector<std::string> words = app->remaining();
    for (std::string& word : words) word = word == kDashes ? "--" : word;
    if (!words.empty() && words.front() == "--") words.erase(words.begin());
    if (words.empty() || !words.front().starts_with('-')) return action(words);
    return Status(StatusCode::kInvalidArgument, "there is no option " + words.front() + ": --help lists them");
  });
}

template <typename Value>
Option Command::AddOption(const std::string& name, Value& value, const std::string& help) {
  return Option(*app_->add_option(name, value, help));
}

template Option Command::AddOption(const std::string&, std::string&, const std::string&);
template Option Command::AddOption(const std::string&, double&, const std::string&);
template Option Command::AddOption(const std::string&, int&, const std::string&);
template Option Command::AddOption(const std::string&, uint32_t&, const std::string&);
template Option Command::AddOption(const std::string&, uint64_t&, const std::string&);
template Option Command::AddOption(const std::string&, std::optional<uint64_t>&, const std::string&);
template Option Command::AddOption(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::AddOption(const std::string&, std::vector<int>&, const std::string&);
template Option Command::AddOption(const std::string&, std::vector<uint64_t>&, const std::string&);

Option Command::AddFlag(const std::string& name, bool& value, const std::string& help) {
  return Option(*app_->add_flag(name, value, help));
}

Option Command::AddWord(const std::string& name, const std::string& words, const std::string& preset,
                        std::function<bool(const std::string&)> take, const std::string& help) {
  const auto read = [take = std::move(take), name, words](const CLI::results_t& given) {
    if (!take(given.front())) throw CLI::ValidationError(name, given.front() + " is none of " + words);
    return true;
  };
  CLI::Option* const option = app_->add_option(name, read, help)->type_name(words);
  return Option(preset.empty() ? *option : *option->default_str(preset));
}

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->set_version_flag("--version", version, "Of the program and of the library that it runs on");
  app_->get_formatter()->column_width(34);
}

CommandLine::~CommandLine() = default;

int CommandLine::Run(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // the order that the parser needs
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    // Help is help with what there is: with an unknown subcommand it is as wrong as that one alone.
    const bool answered = error.get_exit_code() == 0 && app_->remaining(true).empty();
    const std::string missing = answered ? "" : MissingSubcommand(*app_);
    if (!missing.empty()) std::cerr << missing + '\n';
    const int result = missing.empty() ? app_->exit(error) : kFailed;
    return result == 0 ? kSuccess : kFailed;
  } catch (const std::exception& error) {
    std::cerr << app_->get_name() + ": " + error.what() + '\n';
    return kFailed;
  }
  return exit_code_;
}

}  // namespace commpool::cli
