// Which driver commpool runs on: the real one unless a program asks for another. Any thread.
//
//   commpool::initialize(commpool::DriverKind::kAuto).value();   // tools and examples: GPUs where there are some
#ifndef COMMPOOL_RUNTIME_H_
#define COMMPOOL_RUNTIME_H_

#include <string>

#include "commpool/commpool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

enum class DriverKind {
  kCuda = COMMPOOL_DRIVER_CUDA,
  kEmulated = COMMPOOL_DRIVER_EMULATED,
  kAuto = COMMPOOL_DRIVER_AUTO
};

// Optional, before anything else. Under mpirun decide kAuto on one rank and name its result on all: see
// commpool_initialize.
inline Status initialize(DriverKind driver) {
  return detail::FromC(commpool_initialize(static_cast<commpool_driver>(driver)));
}

// "CUDA driver 13.0, 4 devices, NCCL 2.28.9"; empty before the runtime is open.
inline std::string driver_description() { return commpool_driver_description(); }

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_RUNTIME_H_
