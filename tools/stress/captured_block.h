// A capture in a stress schedule: a block that belongs to a graph, and replays of the graph.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/library/driver/loader.h"
#include "src/library/pool/runtime.h"

namespace commpool::cli {

// Allocates, fills and frees a block of the pool in a capture of the stream; replays the graph twice, waits, and
// destroys it. Call it on the thread whose context is current.
Status CaptureAndReplay(const internal::Driver& driver, internal::Runtime& runtime, internal::PoolHandle pool,
                        CUstream stream, uint64_t bytes);

}  // namespace commpool::cli
