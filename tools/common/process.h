// Starts programs as processes. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

// The path of this program itself.
inline constexpr char kOwnProgram[] = "/proc/self/exe";

struct ProcessStart {
  std::string program;
  std::vector<std::string> words;               // the first is the program's name
  std::vector<std::string> variables = {};      // "NAME=VALUE", before this process's own
  std::vector<std::pair<int, int>> files = {};  // this process's descriptors, and their numbers in the new one
  bool own_group = false;                       // so that its orphans can be found
};

Result<pid_t> StartProcess(const ProcessStart& start);

struct ProcessEnd {
  std::string output;
  bool in_time = true;
  int state = 0;  // from waitpid
};

enum class OutputOf { kStdout, kStdoutAndStderr };

// Runs a process until it has closed its output and has ended; ends it after the limit.
Result<ProcessEnd> RunProcess(ProcessStart start, OutputOf output, std::chrono::seconds limit);

}  // namespace commpool::cli
