// How long driver calls take in virtual time: measured on H200s with driver 580 (medians, microseconds).
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_LATENCY_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_LATENCY_H_

#include <cstddef>
#include <cstdint>

namespace commpool::internal::emulator {

// Of one call of the host's; 0.2 for what is not in the table.
double LatencyOf(const char* call, uint64_t bytes);

// Of letting so many devices into a range of mappings: it follows their number, far more than the calls or the bytes.
double AccessLatency(size_t mappings, size_t devices, uint64_t bytes);

// Device time of a copy or a memset of that many bytes.
double CopyDuration(uint64_t bytes);

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_LATENCY_H_
