// Which driver commpool runs on: the real one unless a program asks for another. Any thread.
//
//   commpool::initialize(commpool::DriverKind::kAuto).or_throw();   // tools and examples: GPUs where there are some
#ifndef COMMPOOL_RUNTIME_H_
#define COMMPOOL_RUNTIME_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "commpool/commpool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

enum class DriverKind {
  kCuda = COMMPOOL_DRIVER_CUDA,
  kEmulated = COMMPOOL_DRIVER_EMULATED,
  kAuto = COMMPOOL_DRIVER_AUTO
};

enum class Measure { kNothing = COMMPOOL_MEASURE_NOTHING, kCalls = COMMPOOL_MEASURE_CALLS };

// Optional; comes before every other call. Under mpirun decide kAuto on one rank and name its result on all: see
// commpool_initialize.
inline Status initialize(DriverKind driver, Measure measure = Measure::kNothing) {
  return detail::FromC(
      commpool_initialize(static_cast<commpool_driver>(driver), static_cast<commpool_measure>(measure)));
}

// COMMPOOL_VERSION of the library that runs.
inline int version() { return commpool_version(); }

// "CUDA driver 13.0, 4 devices, NCCL 2.28.9"; empty before the runtime is open.
inline std::string driver_description() { return commpool_driver_description(); }

using DriverCall = commpool_driver_call;

// The functions that were called so far, the most expensive first: after initialize() with Measure::kCalls.
inline Result<std::vector<DriverCall>> driver_calls() {
  std::size_t count = 0;
  Status status = detail::FromC(commpool_driver_calls(nullptr, sizeof(DriverCall), 0, &count));
  if (!status.ok()) return status;
  std::vector<DriverCall> calls(count);
  status = detail::FromC(commpool_driver_calls(calls.data(), sizeof(DriverCall), calls.size(), &count));
  if (!status.ok()) return status;
  calls.resize(std::min(calls.size(), count));  // another thread may have called one more meanwhile
  return calls;
}

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_RUNTIME_H_
