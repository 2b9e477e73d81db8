#include "tools/common/command.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

namespace commpool::cli {

namespace {

std::string& TypedLine() {
  static std::string line;
  return line;
}

std::string NowInUtc() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text.data();
}

std::string Text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The kind of machine, not its name: we compare results between machines of a kind.
nlohmann::json DescribeMachine(const std::string& driver) {
  utsname system{};
  uname(&system);
  return {{"driver", driver},
          {"cores", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.machine}};
}

}  // namespace

void KeepCommandLine(const std::string& program, const std::vector<std::string>& words) {
  std::string text = program;
  for (size_t index = 0; index < words.size(); ++index) {
    const std::string& word = words[index];
    // The record's place is not part of the measurement.
    if (word == "--record") ++index;
    if (word.rfind("--record", 0) != 0) text += " " + word;
  }
  TypedLine() = text;
}

void AddOutputOptions(Command command, OutputOptions& options) {
  command.AddFlag("--json", options.json, "Print one JSON object in place of the table");
  command
      .AddOption("--record", options.record,
                 "Append command, date, machine and results to FILE, one JSON object a line")
      .Called("FILE")
      .Checked([](const std::string& file) {
        errno = 0;
        return std::ofstream(file, std::ios::app).is_open() ? "" : "cannot write " + file + ": " + std::strerror(errno);
      });
}

Result<int> Report(const OutputOptions& options, const std::string& driver, const nlohmann::json& results,
                   const std::function<void()>& print_table) {
  if (options.json) {
    std::cout << Text(results, 2) << '\n';
  } else {
    print_table();
  }
  if (options.record.empty()) return kSuccess;
  const nlohmann::json line = {
      {"command", TypedLine()}, {"date", NowInUtc()}, {"machine", DescribeMachine(driver)}, {"results", results}};
  std::ofstream file(options.record, std::ios::app);
  file << Text(line, -1) << '\n';
  if (file.flush()) return kSuccess;
  return Status(StatusCode::kInternal, "cannot write " + options.record);
}

}  // namespace commpool::cli
