// What the subcommands of `commpool` share: how they are added, what they end with, where results go.
#ifndef COMMPOOL_TOOLS_CLI_COMMAND_H_
#define COMMPOOL_TOOLS_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
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

// Where results go besides the table on stdout.
struct OutputOptions {
  bool json = false;   // one JSON object on stdout in place of the table
  std::string record;  // file to append the results to; empty for none
};

void AddOutputOptions(CLI::App& command, OutputOptions& options);

// Appends one line of JSON: the command line, the date, the machine and the results. Prints why where it cannot.
void Record(const OutputOptions& options, const std::string& driver, const nlohmann::json& results);

// The command line as it was typed, for Record.
void KeepCommandLine(int argc, char** argv);

// Each subcommand's file adds it and leaves its exit code in `exit_code` when it has run.
void AddInfo(CLI::App& app, int& exit_code);
void AddAllReduce(CLI::App& app, int& exit_code);
void AddAdvise(CLI::App& app, int& exit_code);
void AddBench(CLI::App& app, int& exit_code);
void AddReplay(CLI::App& app, int& exit_code);
void AddStress(CLI::App& app, int& exit_code);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_COMMAND_H_
