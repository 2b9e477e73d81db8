// A capture in a program of `commpool stress ranks`: a block that lives in a graph, and the graph's replays.
#ifndef COMMPOOL_TOOLS_CLI_STRESS_RANKS_PROGRAM_GRAPH_H_
#define COMMPOOL_TOOLS_CLI_STRESS_RANKS_PROGRAM_GRAPH_H_

#include <cuda.h>

#include <cstdint>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/pool/runtime.h"

namespace commpool::cli::stress_ranks {

// Allocates, fills and frees a block of the pool in a capture of the stream, replays the graph twice, waits for it and
// destroys it. The program's thread.
Status CaptureAndReplay(const internal::Driver& driver, internal::Runtime& runtime, internal::PoolHandle pool,
                        CUstream stream, uint64_t bytes);

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_CLI_STRESS_RANKS_PROGRAM_GRAPH_H_
