// The command line: subcommands, and the options of each. Only command_line.cc includes CLI11, because its headers make
// a file compile 5 to 8 s longer.
#pragma once

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
  kNotAsAsked = 2,   // NCCL did not use the requested registration
  kRefused = 3,      // the combination cannot run here: the reason is printed
  kFailed = 4,       // an error
};

// What main() writes for the first `--` where a program follows, because the parser would not hand that one on.
inline constexpr const char* kDashes = "\x1f--";

// What to set for an option. Valid while the command line is.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  // Both ends included.
  Option& Between(int least, int most);
  Option& Between(double least, double most);
  Option& Positive();
  Option& OneOf(const std::vector<std::string>& words);
  // `why_not` returns the error for a word, or an empty text.
  Option& Checked(std::function<std::string(const std::string&)> why_not);
  Option& SeparatedByCommas();
  Option& Required();
  // Hides it from help.
  Option& Hidden();
  // The name of the value in help, such as "FILE".
  Option& Called(const std::string& name);
  // Makes help show the variable's current value.
  Option& ShowPreset();

 private:
  CLI::Option* option_;
};

// A subcommand, or the whole program. Valid while the command line is.
class Command {
 public:
  Command(CLI::App& app, int& exit_code) : app_(&app), exit_code_(&exit_code) {}

  Command Add(const std::string& name, const std::string& help);
  // It needs one of its subcommands.
  void NeedSubcommand();
  // Text below the options: examples.
  void Footer(const std::string& text);
  // The action; its result is the exit code. A failure's message is printed under the command's name; kNotSupported is
  // a refusal.
  void Do(std::function<Result<int>()> action);
  // The same, with the words after the options and a `--`, which belong to another program.
  void DoWithRest(std::function<Result<int>(const std::vector<std::string>&)> action);

  // For text, numbers, and vectors of them, as command_line.cc instantiates.
  template <typename Value>
  Option AddOption(const std::string& name, Value& value, const std::string& help = "");
  Option AddFlag(const std::string& name, bool& value, const std::string& help);
  // An option that takes one of some words, such as "cuda|vmm". `take` returns whether it knows the word.
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
  // Runs the subcommand that the words name; returns the exit code.
  int Run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
  int exit_code_ = kSuccess;
};

}  // namespace commpool::cli
