// A capture in the stress commands' schedules: a block that lives in a graph, and the graph's replays.
#ifndef COMMPOOL_TOOLS_STRESS_CAPTURED_BLOCK_H_
#define COMMPOOL_TOOLS_STRESS_CAPTURED_BLOCK_H_

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/pool/runtime.h"

namespace commpool::cli {

// Allocates, fills and frees a block of the pool in a capture of the stream, replays the graph twice, waits for it and
// destroys it. The thread whose context is current.
Status CaptureAndReplay(const internal::Driver& driver, internal::Runtime& runtime, internal::PoolHandle pool,
                        CUstream stream, uint64_t bytes);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_CAPTURED_BLOCK_H_
