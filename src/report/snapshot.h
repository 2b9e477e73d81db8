// One rank's memory as PyTorch's memory snapshots have it, for its memory_viz.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "src/report/recording_reader.h"

namespace commpool::internal::report {

// A line of a stack, such as "model.py:12 forward".
struct StackFrame {
  std::string name;
  std::string file;
  int64_t line = 0;
};
StackFrame ParseFrame(std::string_view line);

// A pickle of the segments at the end, and of what happened on each device.
void WriteSnapshot(std::ostream& out, const RecordingReader& recording);

}  // namespace commpool::internal::report
