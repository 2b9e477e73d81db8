// The command line: subcommands, and the options of each. CLI11 is behind it and in command_line.cc alone, because a
// file that includes its headers takes 5 to 8 s longer to compile.
#ifndef COMMPOOL_TOOLS_COMMON_COMMAND_LINE_H_
#define COMMPOOL_TOOLS_COMMON_COMMAND_LINE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace commpool::cli {

// Exit codes, for scripts.
enum ExitCode {
  kSuccess = 0,
  kWrongResult = 1,  // an element of a collective is wrong
  kNotAsAsked = 2,   // a registration was asked for and NCCL did not use it
  kRefused = 3,      // the combination cannot be run here: the reason is printed
  kFailed = 4,       // an error
};

// What may be said of an option. Valid while the command line is.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  // Both ends are in.
  Option& Between(int least, int most);
  Option& Between(double least, double most);
  Option& Positive();
  Option& OneOf(const std::vector<std::string>& words);
  // `why_not` returns the error for a word, or nothing.
  Option& Checked(std::function<std::string(const std::string&)> why_not);
  Option& SeparatedByCommas();
  Option& Required();
  // Help does not show it.
  Option& Hidden();
  // What help calls the value: "FILE".
  Option& Called(const std::string& name);
  // Help shows the value that the variable has now.
  Option& ShowPreset();

 private:
  CLI::Option* option_;
};

// A subcommand, or the whole program. Valid while the command line is.
class Command {
 public:
  Command(CLI::App& app, int& exit_code) : app_(&app), exit_code_(&exit_code) {}

  Command Add(const std::string& name, const std::string& help);
  // It is nothing without one of its subcommands.
  void NeedSubcommand();
  // Below the options: examples.
  void Footer(const std::string& text);
  // What it does, with its exit code as the result. Of a failure the message is printed under the command's name, where
  // there is one; kNotSupported is a refusal.
  void Do(std::function<Result<int>()> action);
  // The same with the words after the options, which are another program's.
  void DoWithRest(std::function<Result<int>(const std::vector<std::string>&)> action);

  // For text, numbers, and vectors of them: those that command_line.cc instantiates.
  template <typename Value>
  Option AddOption(const std::string& name, Value& value, const std::string& help = "");
  Option AddFlag(const std::string& name, bool& value, const std::string& help);
  // An option that takes one of some words, "cuda|vmm". `take` returns whether it knows the word.
  Option AddWord(const std::string& name, const std::string& words, const std::string& preset,
                 std::function<bool(const std::string&)> take, const std::string& help);

 private:
  CLI::App* app_;
  int* exit_code_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command program() { return Command(*app_, exit_code_); }
  // Does what the words ask for; returns the exit code.
  int Run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
  int exit_code_ = kSuccess;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_COMMON_COMMAND_LINE_H_
