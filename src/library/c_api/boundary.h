// The edge of the library, which every function of the C ABI enters through. It turns a Status into a code and the
// thread's last message, lets no exception pass, and opens the process's one runtime. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/base/try.h"
#include "src/library/base/user_function.h"
#include "src/library/driver/loader.h"
#include "src/library/pool/runtime.h"

namespace commpool::internal {

// Guards the opening of the process's runtime, and what else the process has once. Never destroyed, like the runtime.
Mutex& ProcessMutex();

// Where Python code asked, for recordings.
std::string StackInPython();
// Nobody ends the process's runtime: what is not written yet is written when the process exits.
void FlushRecordingAtExit();

// Parses COMMPOOL_CONF. kInvalidArgument where it is wrong: then only a runtime opens that makes no pools, and tells
// the other ranks why (RefusingRuntime).
Result<Settings> SettingsFromEnvironment();
Result<Runtime*> RefusingRuntime(const Status& why);

// Opens the runtime with the driver that COMMPOOL_DRIVER names, else with `choice`: a job decides once for all ranks.
// With `auto` in the environment a caller who names a driver decides. A second call with the same outcome is OK;
// kFailedPrecondition where another driver is open already, or one that is not measured.
enum class Measure { kNothing, kCalls };
Status OpenProcessRuntime(DriverChoice choice, Measure measure);
bool DriverIsMeasured();

// The process's one mutable global. It is never destroyed, because static destructors of the program may free blocks,
// in any order, until the process ends.
extern constinit std::atomic<Runtime*> process_runtime;

// The runtime where it is open, else null.
inline Runtime* OpenedProcessRuntime() { return process_runtime.load(std::memory_order_acquire); }

// Converts a caller's pointer to the driver's type.
inline CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// The live block that holds the pointer, of whichever pool.
Result<commpool_block> BlockAt(Runtime& runtime, const void* pointer);

// The runtime, opened with the real driver at its first use.
Result<Runtime*> ProcessRuntime();

// Keeps the message for commpool_last_error and returns the code.
commpool_status Report(const Status& status) noexcept;

const char* LastErrorMessage();

// Report for the exception that is being handled: a bug of ours. For std::bad_alloc it ends the process, and names the
// call (rule 12).
commpool_status ReportException(const char* call) noexcept;

inline Status NullOutput() { return InvalidArgument("the output pointer is null"); }
inline Status NullOptions() { return InvalidArgument("options or the output pointer is null"); }

// Runs `body`, which returns a Status, for the function of the C ABI that calls it. An exception becomes a code. Call
// it for functions that need no runtime; all others enter by the functions below.
template <typename Body>
commpool_status Guarded(Body body, const char* name = __builtin_FUNCTION()) noexcept {
  try {
    const Status status = body();
    return status.ok() ? COMMPOOL_OK : Report(status);
  } catch (...) {
    return ReportException(name);
  }
}

// The calls that a function of the program may make while the library runs it, where its kind allows them.
enum class CallKind { kAny, kFree };

// The error for a call that a function of the program makes while the library runs it.
Status RefuseCallOf(const UserFunctionKind& running);

// OK unless this thread is inside a function of the program that the library called, and that must not make this call.
inline Status RefuseUserFunction(CallKind call = CallKind::kAny) {
  if (call == CallKind::kFree) return Status();  // its caller has looked, and postpones it
  const UserFunctionKind* const running = UserFunction::Running();
  return running == nullptr ? Status() : RefuseCallOf(*running);
}

// The one way into the library. It opens the runtime at the first call, refuses a forked child and a user's function,
// and runs `body(runtime)`.
template <typename Body>
commpool_status WithRuntime(Body body, const char* name = __builtin_FUNCTION(),
                            CallKind call = CallKind::kAny) noexcept {
  const auto entered = [&]() -> Status {
    Runtime* runtime = OpenedProcessRuntime();
    if (runtime == nullptr) runtime = COMMPOOL_TRY(ProcessRuntime());
    COMMPOOL_TRY(runtime->RefuseForkedChild());
    COMMPOOL_TRY(RefuseUserFunction(call));
    const std::optional<RelaxedCapture> relaxed = runtime->Relax();
    Status status = body(*runtime);
    runtime->FreePostponed();
    return status;
  };
  return Guarded(entered, name);
}

// WithRuntime for a call about one pool: finds it by its handle, and runs `body(pool)`.
template <typename Body>
commpool_status WithPool(commpool_pool handle, Body body, const char* name = __builtin_FUNCTION()) noexcept {
  const auto found = [&](Runtime& runtime) -> Status {
    const std::shared_ptr<Pool> pool = COMMPOOL_TRY(runtime.pools().Find(handle));
    return body(*pool);
  };
  return WithRuntime(found, name);
}

// Writes the value of a result, if there is one, to the caller's output.
template <typename Value, typename Output>
Status Store(const Result<Value>& result, Output* output) {
  if (result.ok()) *output = *result;
  return result.status();
}

}  // namespace commpool::internal
