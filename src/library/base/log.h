// Prints a line on stderr for news that no return value carries. COMMPOOL_LOG sets how much. Any thread.
#pragma once

#include <string>

#include "commpool/status.h"

namespace commpool::internal {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

// "error", "warning", "info" or "debug"; empty is a warning, the default. Errors name the text and those four.
Result<LogLevel> ParseLogLevel(const std::string& text);

// Whether a line of this level would be printed: ask before you compose an expensive one.
bool LogEnabled(LogLevel level);

void Log(LogLevel level, const std::string& line);

}  // namespace commpool::internal
