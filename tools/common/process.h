// Programs that a command starts as processes of their own. Any thread.
#ifndef COMMPOOL_TOOLS_COMMON_PROCESS_H_
#define COMMPOOL_TOOLS_COMMON_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// This program itself.
inline constexpr char kOwnProgram[] = "/proc/self/exe";

struct ProcessStart {
  std::string program;
  std::vector<std::string> words;               // the first is the program's name
  std::vector<std::string> variables = {};      // "NAME=VALUE", before what this process has
  std::vector<std::pair<int, int>> files = {};  // of this process, and the numbers that they have in the new one
  bool own_group = false;                       // its orphans are found by it
};

Result<pid_t> StartProcess(const ProcessStart& start);

struct ProcessEnd {
  std::string output;
  bool in_time = true;
  int state = 0;  // as waitpid gives it
};

enum class OutputOf { kStdout, kStdoutAndStderr };

// The whole of it: until it has closed its output and has ended, or is ended after the limit.
Result<ProcessEnd> RunProcess(ProcessStart start, OutputOf output, std::chrono::seconds limit);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_COMMON_PROCESS_H_
