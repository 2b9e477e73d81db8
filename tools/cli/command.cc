#include "tools/cli/command.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <thread>

namespace commpool::cli {

namespace {

std::string& CommandLine() {
  static std::string command_line;
  return command_line;
}

std::string NowInUtc() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text.data();
}

// The kind of machine, not its name: results are compared between machines of a kind.
nlohmann::json DescribeMachine(const std::string& driver) {
  utsname system{};
  uname(&system);
  return {{"driver", driver},
          {"cores", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.machine}};
}

}  // namespace

void KeepCommandLine(int argc, char** argv) {
  std::string text = "commpool";
  for (int index = 1; index < argc; ++index) {
    const std::string word = argv[index];
    // Where the record goes is no part of what was measured.
    if (word == "--record") ++index;
    if (word.rfind("--record", 0) != 0) text += " " + word;
  }
  CommandLine() = text;
}

std::string UnknownSubcommand(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  const auto known = command->get_subcommands([](const CLI::App*) { return true; });
  if (known.empty() || command->remaining_size() == 0) return "";
  std::string names;
  for (const CLI::App* one : known) names += (names.empty() ? "" : ", ") + one->get_name();
  return command->get_name() + ": there is no " + command->remaining().front() + "; there are " + names;
}

std::string Counted(int64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

void AddOutputOptions(CLI::App& command, OutputOptions& options) {
  const auto writable = [](const std::string& file) {
    errno = 0;
    return std::ofstream(file, std::ios::app).is_open() ? "" : "cannot write " + file + ": " + std::strerror(errno);
  };
  command.add_flag("--json", options.json, "Print one JSON object in place of the table");
  command
      .add_option("--record", options.record,
                  "Append command, date, machine and results to FILE, one JSON object a line")
      ->type_name("FILE")
      ->check(writable);
}

void Record(const OutputOptions& options, const std::string& driver, const nlohmann::json& results) {
  if (options.record.empty()) return;
  const nlohmann::json line = {
      {"command", CommandLine()}, {"date", NowInUtc()}, {"machine", DescribeMachine(driver)}, {"results", results}};
  std::ofstream file(options.record, std::ios::app);
  file << line.dump() << '\n';
  if (!file.flush()) std::cerr << "commpool: cannot write " << options.record << '\n';
}

}  // namespace commpool::cli
