// The process's one runtime. Any thread.
#ifndef COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_
#define COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_

#include <atomic>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/pool/runtime.h"

namespace commpool::internal {

// The runtime will be opened with a driver whose calls are counted and timed. kFailedPrecondition once it is open.
Status MeasureDriver();
bool DriverIsMeasured();

// What COMMPOOL_CONF says. kInvalidArgument where it is wrong: then no runtime opens, but one that makes no pool, by
// which the other ranks hear why: RefusingRuntime.
Result<Settings> SettingsFromEnvironment();
Result<Runtime*> RefusingRuntime(const Status& why);

// Opens the runtime with what COMMPOOL_DRIVER says, else with `choice`; `auto` in the environment leaves it to a caller
// who names a driver, because a job decides once for all ranks. Again with the same outcome is OK; kFailedPrecondition
// where another driver is open already.
Status OpenProcessRuntime(DriverChoice choice);

// The runtime, opened with the real driver at its first use.
Result<Runtime*> ProcessRuntime();

// The process's one mutable global. Never destroyed: blocks may be freed by static destructors, in any order, until the
// process is gone.
extern constinit std::atomic<Runtime*> process_runtime;

// The runtime where it is open, else null.
inline Runtime* OpenedProcessRuntime() { return process_runtime.load(std::memory_order_acquire); }

// A caller's pointer as the runtime knows memory.
inline CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_
