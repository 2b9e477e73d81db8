// One rank's allocations as a trace: the text that `commpool replay` runs.
#pragma once

#include <cstdint>
#include <ostream>

#include "commpool/status.h"
#include "src/report/recording_reader.h"

namespace commpool::internal::report {

struct TraceCounts {
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t small = 0;  // allocations from threads' caches, which the trace lacks
};

// kNotFound where the recording has no block.
Result<TraceCounts> WriteAllocationTrace(std::ostream& out, const RecordingReader& recording);

}  // namespace commpool::internal::report
