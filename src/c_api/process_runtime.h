// The process's one runtime. Any thread.
#ifndef COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_
#define COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_

#include <atomic>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/pool/runtime.h"

namespace commpool::internal {

// Makes the runtime count and time driver calls once it opens. kFailedPrecondition where it is open already.
Status MeasureDriver();
bool DriverIsMeasured();

// Parses COMMPOOL_CONF. kInvalidArgument where it is wrong: then only a runtime opens that makes no pools, and tells
// the other ranks why (RefusingRuntime).
Result<Settings> SettingsFromEnvironment();
Result<Runtime*> RefusingRuntime(const Status& why);

// Opens the runtime with the driver that COMMPOOL_DRIVER names, else with `choice`: a job decides once for all ranks.
// With `auto` in the environment a caller who names a driver decides. A second call with the same outcome is OK;
// kFailedPrecondition where another driver is open already.
Status OpenProcessRuntime(DriverChoice choice);

// The runtime, opened with the real driver at its first use.
Result<Runtime*> ProcessRuntime();

// The process's one mutable global. It is never destroyed, because static destructors of the program may free blocks,
// in any order, until the process ends.
extern constinit std::atomic<Runtime*> process_runtime;

// The runtime where it is open, else null.
inline Runtime* OpenedProcessRuntime() { return process_runtime.load(std::memory_order_acquire); }

// Converts a caller's pointer to the driver's type.
inline CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_
