// Every emulated driver function begins here: it counts the call, injects faults, checks initialisation and the
// context, and adds virtual time.
#pragma once

// cuda.h's functions are this library's exports.
#pragma GCC visibility push(default)
#include <cuda.h>

#include "src/emulator/runtime_extension.h"
#pragma GCC visibility pop

#include <mutex>
#include <new>
#include <system_error>

#include "src/emulator/cuda/latency.h"
#include "src/emulator/cuda/machine.h"

namespace commpool::internal::emulator {

enum class Needs {
  kNothing,  // works before cuInit
  kInitialised,
  kCurrentContext,  // needs a context, and one that is not lost
};

// A default stream belongs to the current context; an explicit stream knows its own.
inline Needs NeedsOf(CUstream stream) {
  const bool current = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  return current ? Needs::kCurrentContext : Needs::kInitialised;
}

// Does the same as Call, but throws if the host has no memory or no thread.
template <typename Body>
CUresult CallOrThrow(const char* name, Needs needs, Body body, uint64_t bytes) {
  Machine& machine = Machine::Get();
  std::unique_lock<std::mutex> lock(machine.mutex);
  if (UserObjects::InCallback()) {
    machine.logbook.Report("a user object's callback called CUDA", name);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (const std::optional<int> fault = machine.logbook.Enter(name)) return static_cast<CUresult>(*fault);
  if (needs != Needs::kNothing && !machine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == Needs::kCurrentContext) {
    const CUctx_st* context = CurrentContext();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->sticky != CUDA_SUCCESS) return context->sticky;
  }
  machine.scheduler.host_time_us += LatencyOf(name, bytes);
  return body(machine, lock);
}

// Runs the body of an API function under the machine's lock. The body may unlock it to wait.
template <typename Body>
CUresult Call(const char* name, Needs needs, Body body, uint64_t bytes = 0) {
  try {
    return CallOrThrow(name, needs, body, bytes);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::system_error&) {  // no thread
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

// Returns the device of the current context. REQUIRES: Needs::kCurrentContext.
inline int CurrentDevice() { return CurrentContext()->device; }

inline bool IsLegacy(CUstream handle) { return handle == nullptr || handle == CU_STREAM_LEGACY; }

// Finds the stream that a handle means here; its context must not be lost. A program cannot use the legacy stream while
// a blocking stream captures. REQUIRES: NeedsOf(handle).
inline CUresult FindStream(Machine& machine, CUstream handle, CUstream_st** stream) {
  *stream = machine.scheduler.Resolve(handle, CurrentContext() == nullptr ? 0 : CurrentDevice());
  if (*stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult sticky = machine.contexts[static_cast<size_t>((*stream)->device)]->sticky;
  return sticky != CUDA_SUCCESS || !IsLegacy(handle) ? sticky : machine.captures.RefuseImplicit((*stream)->device);
}

// Runs the body of a function that a stream's handle is given, with the stream that `kFind` finds.
template <CUresult (*kFind)(Machine&, CUstream, CUstream_st**) = FindStream, typename Body>
CUresult CallOnStream(const char* name, CUstream handle, Body body) {
  return Call(name, NeedsOf(handle), [&](Machine& machine, auto& lock) {
    CUstream_st* stream = nullptr;
    const CUresult found = kFind(machine, handle, &stream);
    return found == CUDA_SUCCESS ? body(machine, lock, stream) : found;
  });
}

constexpr int kDriverVersion = 13000;

// Finds a function of cuda.h by name. Returns null if the emulator does not have it, if the driver has no such name, or
// if the function is newer than `version`.
void* FindFunction(const char* name, int version);

}  // namespace commpool::internal::emulator
