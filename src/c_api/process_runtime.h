// The process's one runtime. Any thread.
#ifndef COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_
#define COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/pool/runtime.h"

namespace commpool {

// Opens the runtime; again with the same outcome is OK. kFailedPrecondition where another driver is open already.
Status OpenProcessRuntime(DriverChoice fallback);

// The runtime, opened with the real driver at its first use.
Result<Runtime*> ProcessRuntime();

// The runtime where it is open, else null.
Runtime* OpenedProcessRuntime();

}  // namespace commpool

#endif  // COMMPOOL_SRC_C_API_PROCESS_RUNTIME_H_
