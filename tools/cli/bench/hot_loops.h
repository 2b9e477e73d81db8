// The timed loops of `commpool bench hot`: pairs of a cached allocation and its free. kOutOfMemory where an allocator
// is out of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "commpool/status.h"
#include "tools/cli/bench/hot_allocators.h"

namespace commpool::cli {

// Nanoseconds for a pair: allocates and frees one block again and again, for about `target_ns` in all.
Result<double> TimePairs(const HotAllocator& allocator, uint64_t bytes, double target_ns);

// Nanoseconds for a pair: frees and allocates one of `live` blocks after the other, in a random order.
Result<double> TimeLive(const HotAllocator& allocator, uint64_t bytes, size_t live);

// Like a program's large tensors: frees and allocates one of 32 live blocks of 1 MiB to 1 GiB, at a random place with a
// random size. A block stays on its place's stream; `by_stream` has one allocator of the same kind for each.
// Nanoseconds for a replacement, over about `target_ns`, after one pass through all draws that fills caches.
Result<double> TimeMix(const std::vector<HotAllocator>& by_stream, double target_ns);

// Pairs per second of all threads together. Each thread has its own allocator, calls `prepare` first, and runs for the
// same time.
Result<double> TimeThreads(const std::vector<HotAllocator>& allocators, uint64_t bytes, double target_ns,
                           const std::function<void()>& prepare);

}  // namespace commpool::cli
