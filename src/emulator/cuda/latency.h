// How long driver calls take in virtual time: medians in microseconds, measured on H200s with driver 580.
#pragma once

#include <cstddef>
#include <cstdint>

namespace commpool::internal::emulator {

// Returns the time of one host call; 0.2 for a call that is not in the table.
double LatencyOf(const char* call, uint64_t bytes);

// Returns the time to give devices access to a range. It depends on the number of mappings and devices, far more than
// on calls or bytes.
double AccessLatency(size_t mappings, size_t devices, uint64_t bytes);

// Returns the device time of a copy or a memset of so many bytes.
double CopyDuration(uint64_t bytes);

}  // namespace commpool::internal::emulator
