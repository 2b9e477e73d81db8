// What the `main` of a program with subcommands does. One thread.
#ifndef COMMPOOL_TOOLS_COMMON_PROGRAM_H_
#define COMMPOOL_TOOLS_COMMON_PROGRAM_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/common/command.h"

namespace commpool::cli {

struct Program {
  std::string name;
  std::string description;
  std::string version;   // the line of --version
  std::string examples;  // below the options of --help
  std::function<void(Command)> add_commands;
};

// "0.1.0", of COMMPOOL_VERSION.
std::string VersionText(int version);

// Does what the words after the program's name ask for; returns the exit code.
int RunProgram(const Program& program, std::vector<std::string> words);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_COMMON_PROGRAM_H_
