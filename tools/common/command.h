// Shared by all subcommands: how to add them, how they end, where results go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/library/base/bytes.h"
#include "tools/common/command_line.h"

namespace commpool::cli {

using internal::Counted;

// The word for a value; empty where there is none.
template <typename Value>
std::string NameOf(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "";
}

// Such as "cuda|nccl|pinned|vmm".
template <typename Value>
std::string Words(const std::map<std::string, Value>& names) {
  std::string words;
  for (const auto& [name, value] : names) words += (words.empty() ? "" : "|") + name;
  return words;
}

// An option that takes one of some words. Help and errors list them; numbers are refused. `names` must outlive the
// command.
template <typename Value>
void AddChoice(Command command, const std::string& option, Value& value, const std::map<std::string, Value>& names,
               const std::string& help) {
  const auto take = [&value, &names](const std::string& word) {
    const auto found = names.find(word);
    if (found != names.end()) value = found->second;
    return found != names.end();
  };
  command.AddWord(option, Words(names), NameOf(names, value), take, help);
}

// --lives, for the enum of programs and for the library's own.
template <typename Streams>
void AddLives(Command command, Streams& streams, const std::string& help) {
  static const std::map<std::string, Streams> lives = {{"outlive", Streams::kOutlive}, {"may-die", Streams::kMayDie}};
  AddChoice(command, "--lives", streams, lives, help);
}

// Where results go besides the table on stdout.
struct OutputOptions {
  bool json = false;   // one JSON object on stdout, without the table
  std::string record;  // file to append the results to; empty for none
};

// Refuses a file that cannot be written, before anything is measured.
void AddOutputOptions(Command command, OutputOptions& options);

// The end of a command that measured: prints the table (with --json the results) and with --record appends a line of
// JSON: command line, date, machine, results. Invalid UTF-8 from a program or the environment is replaced by marks.
Result<int> Report(const OutputOptions& options, const std::string& driver, const nlohmann::json& results,
                   const std::function<void()>& print_table);

// Keeps the command line as it was typed, for --record.
void KeepCommandLine(const std::string& program, const std::vector<std::string>& words);

}  // namespace commpool::cli
