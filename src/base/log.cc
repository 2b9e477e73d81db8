#include "src/base/log.h"

#include <cstdio>

#include "src/base/environment.h"

namespace commpool::internal {

namespace {

LogLevel Threshold() {
  const std::string& level = Environment::Get().log_level;
  if (level == "error") return LogLevel::kError;
  if (level == "info") return LogLevel::kInfo;
  if (level == "debug") return LogLevel::kDebug;
  return LogLevel::kWarning;
}

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "";
}

}  // namespace

bool LogEnabled(LogLevel level) {
  static const LogLevel threshold = Threshold();
  return level <= threshold;
}

void Log(LogLevel level, const std::string& line) {
  if (!LogEnabled(level)) return;
  // One call for the whole line, so that lines of several threads and ranks do not interleave.
  std::fprintf(stderr, "%s", ("commpool " + std::string(Name(level)) + ": " + line + "\n").c_str());
}

}  // namespace commpool::internal
