// The `main` of a program with subcommands. One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/common/command.h"

namespace commpool::cli {

struct Program {
  std::string name;
  std::string description;
  std::string version;   // printed by --version
  std::string examples;  // printed below the options by --help
  std::function<void(Command)> add_commands;
};

// Such as "0.1.0", from COMMPOOL_VERSION.
std::string VersionText(int version);

// Runs what the words after the program's name ask for; returns the exit code.
int RunProgram(const Program& program, std::vector<std::string> words);

}  // namespace commpool::cli
