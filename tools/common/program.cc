#include "tools/common/program.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

namespace commpool::cli {

namespace {

// A command has failed if its output could not be written, for example to a full disk.
int AfterOutput(const std::string& program, int exit_code) {
  std::cout.flush();
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  std::fprintf(stderr, "%s: cannot write to stdout: %s\n", program.c_str(), std::strerror(errno));
  return exit_code == kSuccess ? kFailed : exit_code;
}

}  // namespace

std::string VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

int RunProgram(const Program& program, std::vector<std::string> words) {
  KeepCommandLine(program.name, words);
  CommandLine line(program.name, program.description, program.version);
  Command command = line.program();
  command.NeedSubcommand();
  command.Footer(program.examples);
  program.add_commands(command);
  return AfterOutput(program.name, line.Run(std::move(words)));
}

}  // namespace commpool::cli
