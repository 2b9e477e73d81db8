// Which traces a command reads, and how it changes them first.
#ifndef COMMPOOL_TOOLS_TRACES_TRACE_OPTIONS_H_
#define COMMPOOL_TOOLS_TRACES_TRACE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/common/command.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

struct TraceChoice {
  std::vector<std::string> places;  // files and folders
  uint32_t streams = 1;
  double scale = 1;
};

void AddTraceOptions(Command command, TraceChoice& choice);

// Reads all of them, scaled and spread.
Result<std::vector<Trace>> ReadTraces(const TraceChoice& choice);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_TRACES_TRACE_OPTIONS_H_
