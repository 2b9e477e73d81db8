// Prints a line on stderr for news that no return value carries. COMMPOOL_LOG sets how much. Any thread.
#pragma once

#include <string>

#include "commpool/status.h"

namespace commpool::internal {

// An error cannot be returned; a warning is what went wrong without failing a call, or what the program should change;
// info is what it may want to know; debug, each segment. By default info is not printed.
enum class LogLevel { kError, kWarning, kInfo, kDebug };

// "error", "warning", "info" or "debug"; empty is a warning, the default. Errors name the text and those four.
Result<LogLevel> ParseLogLevel(const std::string& text);

// Whether a line of this level would be printed: ask before you compose an expensive one.
bool LogEnabled(LogLevel level);

void Log(LogLevel level, const std::string& line);

}  // namespace commpool::internal
