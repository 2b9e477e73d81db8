// A recorded sequence of allocations and frees, and PyTorch's own statistics for it. Plain values: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"

namespace commpool::cli {

struct TraceEvent {
  static constexpr uint32_t kNoStream = UINT32_MAX;

  uint32_t block = 0;            // numbered by first allocation
  uint32_t stream = 0;           // of the block's allocation
  uint32_t also_on = kNoStream;  // for an allocation: the second stream that uses the block
  uint64_t bytes = 0;            // as requested; 0 for a free
  bool allocates() const { return bytes != 0; }
};

struct Trace {
  std::string name;
  std::vector<TraceEvent> events;
  uint32_t blocks = 0;
  uint32_t streams = 0;
  uint64_t peak_requested_bytes = 0;
  // Peak requested / peak reserved of PyTorch 2.11 in the recorded run; nothing where no file beside the trace has it.
  std::optional<double> pytorch_native;
  std::optional<double> pytorch_expandable;
};

// The text of a trace: `a ID BYTES STREAM`, `f ID`, lines that begin with # are comments. Errors name the line.
Result<Trace> ParseTrace(const std::string& name, const std::string& text);

// Reads NAME.trace or NAME.trace.xz, and NAME.native.json and NAME.expandable.json beside it where they are.
Result<Trace> ReadTrace(const std::string& file);

// The named files, and the files in named folders, in order. An error where one is missing or a folder has no trace.
Result<std::vector<std::string>> FindTraces(const std::vector<std::string>& places);

// Spreads a trace over streams: runs of 64 allocations stay on one stream; every 8th block that two streams can share
// is also used on the next stream.
void SpreadOverStreams(Trace& trace, uint32_t streams);

// Multiplies all sizes and rounds to whole bytes: the same program with other shapes.
void Scale(Trace& trace, double factor);

}  // namespace commpool::cli
