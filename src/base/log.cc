#include "src/base/log.h"

#include <cstdio>

#include "src/base/environment.h"

namespace commpool::internal {

namespace {

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

// A text that is none of them is refused where the driver is opened; until then the default counts.
LogLevel Threshold() {
  const Result<LogLevel> level = ParseLogLevel(Environment::Get().log_level);
  return level.ok() ? *level : LogLevel::kWarning;
}

}  // namespace

Result<LogLevel> ParseLogLevel(const std::string& text) {
  if (text.empty()) return LogLevel::kWarning;
  for (const LogLevel level : {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    if (text == Name(level)) return level;
  }
  return Status(StatusCode::kInvalidArgument,
                "COMMPOOL_LOG is \"" + text + "\": it may be error, warning, info or debug");
}

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
