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

// What a program's large tensors do: the free and the allocation of one of 32 live blocks of 1 MiB to 1 GiB, whose
// place and next size are drawn anew. A block stays on one stream, that of its place: one allocator a stream, all of
// one kind. Nanoseconds a replacement, for about `target_ns` in all, after a pass through all draws that fills caches.
Result<double> TimeMix(const std::vector<HotAllocator>& by_stream, double target_ns);

// Pairs a second of all threads together, each with an allocator of its own, all running for as long. Each thread calls
// `prepare` first.
Result<double> TimeThreads(const std::vector<HotAllocator>& allocators, uint64_t bytes, double target_ns,
                           const std::function<void()>& prepare);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_HOT_LOOPS_H_
