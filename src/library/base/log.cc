#include "src/library/base/log.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "src/library/base/environment.h"
#include "src/library/base/failure.h"
#include "src/library/base/write_signals.h"

namespace commpool::internal {

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};  // in the order of LogLevel

Result<LogLevel> ParseLogLevel(const std::string& text) {
  if (text.empty()) return LogLevel::kWarning;
  const auto* const found = std::find(std::begin(kNames), std::end(kNames), text);
  if (found != std::end(kNames)) return static_cast<LogLevel>(found - kNames);
  return InvalidArgument("COMMPOOL_LOG is \"", text, "\": it may be error, warning, info or debug");
}

bool LogEnabled(LogLevel level) {
  // The loader refuses a wrong value; until then the default counts.
  static const LogLevel threshold = ParseLogLevel(Environment::Get().log_level).value_or(LogLevel::kWarning);
  return level <= threshold;
}

void Log(LogLevel level, const std::string& line) {
  if (!LogEnabled(level)) return;
  const WriteSignalsBlocked no_signals;
  // One call for the whole line: lines of several threads and ranks must not mix.
  std::fprintf(stderr, "%s", ("commpool " + std::string(kNames[static_cast<int>(level)]) + ": " + line + "\n").c_str());
}

}  // namespace commpool::internal
