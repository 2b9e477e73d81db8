// What the subcommands of `commpool` share: how they are added, what they end with, where results go.
#ifndef COMMPOOL_TOOLS_CLI_COMMAND_H_
#define COMMPOOL_TOOLS_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace commpool::cli {

// Exit codes, for scripts.
enum ExitCode {
  kSuccess = 0,
  kWrongResult = 1,  // an element of a collective is wrong
  kNotAsAsked = 2,   // a registration was asked for and NCCL did not use it
  kRefused = 3,      // the combination cannot be run here: the reason is printed
  kFailed = 4,       // an error
};

// A sentence where the command line asks for a subcommand that there is not, with those that there are; empty
// otherwise.
std::string UnknownSubcommand(const CLI::App& app);

// "1 rank", "4 ranks".
std::string Counted(int64_t count, const std::string& thing);

// Empty where no word means the value.
template <typename Value>
std::string NameOf(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "";
}

// "cuda|nccl|vmm".
template <typename Value>
std::string Words(const std::map<std::string, Value>& names) {
  std::string words;
  for (const auto& [name, value] : names) words += (words.empty() ? "" : "|") + name;
  return words;
}

// An option that takes one of some words. Help and errors list them; numbers are refused.
template <typename Value>
CLI::Option* AddChoice(CLI::App& command, const std::string& option, Value& value,
                       const std::map<std::string, Value>& names, const std::string& help) {
  const auto read = [&value, &names, option](const CLI::results_t& words) {
    const auto found = names.find(words.front());
    if (found == names.end()) throw CLI::ValidationError(option, words.front() + " is none of " + Words(names));
    value = found->second;
    return true;
  };
  CLI::Option* const added = command.add_option(option, read, help)->type_name(Words(names));
  const std::string preset = NameOf(names, value);
  return preset.empty() ? added : added->default_str(preset);
}

// Where results go besides the table on stdout.
struct OutputOptions {
  bool json = false;   // one JSON object on stdout in place of the table
  std::string record;  // file to append the results to; empty for none
};

// Refuses a file that cannot be written before anything is measured.
void AddOutputOptions(CLI::App& command, OutputOptions& options);

// Appends one line of JSON: the command line, the date, the machine and the results. Prints why where it cannot.
void Record(const OutputOptions& options, const std::string& driver, const nlohmann::json& results);

// The command line as it was typed, for Record.
void KeepCommandLine(int argc, char** argv);

// Those that the program has: all, or in the program that tools/quickstart builds the ones that it needs.
void AddCommands(CLI::App& app, int& exit_code);

// Each subcommand's file adds it and leaves its exit code in `exit_code` when it has run.
void AddInfo(CLI::App& app, int& exit_code);
void AddAllReduce(CLI::App& app, int& exit_code);
void AddAdvise(CLI::App& app, int& exit_code);
void AddBench(CLI::App& app, int& exit_code);
void AddReplay(CLI::App& app, int& exit_code);
void AddStress(CLI::App& app, int& exit_code);
void AddEmulate(CLI::App& app, int& exit_code);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_COMMAND_H_
