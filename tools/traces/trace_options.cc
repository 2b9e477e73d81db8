#include "tools/traces/trace_options.h"

#include <utility>

#include "src/base/try.h"

namespace commpool::cli {

void AddTraceOptions(Command command, TraceChoice& choice) {
  command.AddOption("TRACE", choice.places, "Files NAME.trace or NAME.trace.xz, or folders of them").Required();
  command.AddOption("--streams", choice.streams, "Streams to spread a trace over").Between(1, 64).ShowPreset();
  command.AddOption("--scale", choice.scale, "Multiplies all sizes").Between(0.01, 100.0).ShowPreset();
}

Result<std::vector<Trace>> ReadTraces(const TraceChoice& choice) {
  const std::vector<std::string> files = COMMPOOL_TRY(FindTraces(choice.places));
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    Trace trace = COMMPOOL_TRY(ReadTrace(file));
    if (choice.scale != 1) Scale(trace, choice.scale);
    if (choice.streams > 1) SpreadOverStreams(trace, choice.streams);
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace commpool::cli
