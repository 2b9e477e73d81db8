// The timed loops of `commpool bench hot`: pairs of a cached allocation and its free. kOutOfMemory where an allocator
// has no more.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_HOT_LOOPS_H_
#define COMMPOOL_TOOLS_CLI_BENCH_HOT_LOOPS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/bench/hot_allocators.h"

namespace commpool::cli {

// Nanoseconds a pair: one block, allocated and freed over and over for about `target_ns` in all.
Result<double> TimePairs(const HotAllocator& allocator, uint64_t bytes, double target_ns);

// Nanoseconds a pair: `live` blocks, of which one after the other in a random order is freed and allocated anew.
Result<double> TimeLive(const HotAllocator& allocator, uint64_t bytes, size_t live);

// Pairs a second of all threads together, each with an allocator of its own, all running for as long. Each thread calls
// `prepare` first.
Result<double> TimeThreads(const std::vector<HotAllocator>& allocators, uint64_t bytes, double target_ns,
                           const std::function<void()>& prepare);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_HOT_LOOPS_H_
