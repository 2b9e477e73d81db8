// Streams, events, host functions.
#include <algorithm>
#include <chrono>
#include <utility>

#include "src/emulator/cuda/api.h"

using namespace commpool::internal::emulator;  // NOLINT: this file is C on the outside

namespace {

constexpr int kHighestPriority = -5;
constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

std::shared_ptr<Operation> MakeOperation(const char* name) {
  auto operation = std::make_shared<Operation>();
  operation->name = name;
  return operation;
}

// Waits for a record of another process, as a worker: no other way tells when it is done.
std::shared_ptr<Operation> AwaitElsewhere(const std::shared_ptr<SharedEvent>& event, uint64_t record) {
  std::shared_ptr<Operation> wait = MakeOperation("wait for another process's event");
  wait->pace = Operation::Pace::kMayBlock;
  wait->run = [event, record](const Pointers&, const Pointers&) { event->Await(record); };
  return wait;
}

// PyTorch's process groups ask for themselves whether a collective is done. Once they have heard it the program's waits
// for it do nothing, and those that it forgot would not show. So they hear late of what the host does not know; early
// enough for the shortest timeout of a group.
bool MustAskAgain(const Machine& machine, const Marker& marker) {
  const bool is_late = std::chrono::steady_clock::now() >= marker.done_at + std::chrono::seconds(2);
  return !is_late && !machine.races.HostKnows(marker.clock) && CallStack::Capture().IsOf(Asker::kProcessGroup);
}

// Finds the stream of a call that asks for its progress. Returns an error while the stream captures, or while another
// capture forbids the question.
CUresult FindProgress(Machine& machine, CUstream handle, CUstream_st** stream) {
  CUresult result = FindStream(machine, handle, stream);
  if (result == CUDA_SUCCESS) result = machine.captures.RefuseCaptured(*stream);
  return result == CUDA_SUCCESS ? machine.captures.RefuseUnsafe() : result;
}

// Does the same for an event.
CUresult CheckProgress(Machine& machine, const CUevent_st* event) {
  const CUresult result = machine.captures.RefuseCaptured(event);
  return result == CUDA_SUCCESS ? machine.captures.RefuseUnsafe() : result;
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return Call("cuStreamCreate", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
    *stream = machine.scheduler.CreateStream(CurrentDevice(), flags, std::clamp(priority, kHighestPriority, 0));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

CUresult cuStreamDestroy(CUstream handle) {
  return Call("cuStreamDestroy", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    CUstream_st* const stream = machine.scheduler.Resolve(handle, 0);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    machine.captures.Forget(stream);
    machine.scheduler.DestroyStream(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return CallOnStream<FindProgress>("cuStreamQuery", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (!machine.scheduler.IsIdle(stream)) return CUDA_ERROR_NOT_READY;
    machine.races.Heard(stream->clock.clock);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return CallOnStream<FindProgress>(
      "cuStreamSynchronize", handle, [&](Machine& machine, auto& lock, CUstream_st* stream) {
        const int device = stream->device;
        const StreamReach reach = stream->last == nullptr ? StreamReach() : stream->last->reach;
        machine.scheduler.WaitForStream(lock, stream);
        machine.async_memory.HostWaitedFor(reach);
        return machine.contexts[static_cast<size_t>(device)]->sticky;
      });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
  return CallOnStream("cuStreamWaitEvent", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (!machine.scheduler.IsEvent(event)) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (machine.captures.Of(stream) != nullptr || machine.captures.IsCaptured(event)) {
      return machine.captures.Wait(stream, event, IsLegacy(handle));
    }
    if (const uint64_t elsewhere = event->RecordedElsewhere()) {
      return machine.Submit(stream, AwaitElsewhere(event->shared, elsewhere));
    }
    if (event->marker == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
    std::shared_ptr<Operation> wait = MakeOperation("event wait");
    wait->waits.push_back(event->marker);  // the record at this moment: a later record of the event changes nothing
    return machine.Submit(stream, std::move(wait));
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return Call("cuStreamGetCtx", NeedsOf(handle), [&](Machine& machine, auto&) {
    CUstream_st* const stream = machine.scheduler.Resolve(handle, CurrentContext() == nullptr ? 0 : CurrentDevice());
    if (context == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *context = machine.contexts[static_cast<size_t>(stream->device)].get();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return Call("cuStreamGetId", NeedsOf(handle), [&](Machine& machine, auto&) {
    CUstream_st* const stream = machine.scheduler.Resolve(handle, CurrentContext() == nullptr ? 0 : CurrentDevice());
    if (id == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = machine.captures.RefuseCaptured(stream);
    if (result == CUDA_SUCCESS) *id = stream->id;
    return result;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return Call("cuStreamGetPriority", NeedsOf(handle), [&](Machine& machine, auto&) {
    const CUstream_st* const stream =
        machine.scheduler.Resolve(handle, CurrentContext() == nullptr ? 0 : CurrentDevice());
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return Call("cuCtxGetStreamPriorityRange", Needs::kCurrentContext, [&](Machine&, auto&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = kHighestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* context) {
  return CallOnStream("cuLaunchHostFunc", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Operation> operation = MakeOperation("host function");
    operation->duration_us = 3;
    operation->pace = Operation::Pace::kMayBlock;
    operation->run = [function, context](const Pointers&, const Pointers&) { function(context); };
    return machine.Submit(stream, std::move(operation));
  });
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return Call("cuEventCreate", Needs::kCurrentContext, [&](Machine& machine, auto&) {
    const bool untimed = (flags & CU_EVENT_DISABLE_TIMING) != 0;
    const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (event == nullptr || (flags & ~kEventFlags) != 0 || (shared && !untimed)) return CUDA_ERROR_INVALID_VALUE;
    *event = machine.scheduler.CreateEvent(CurrentDevice(), flags);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent event) {
  return Call("cuEventDestroy", Needs::kInitialised, [&](Machine& machine, auto&) {
    machine.captures.Forget(event);
    return machine.scheduler.DestroyEvent(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  return CallOnStream("cuEventRecord", handle, [&](Machine& machine, auto&, CUstream_st* stream) {
    if (!machine.scheduler.IsEvent(event) || event->device != stream->device) return CUDA_ERROR_INVALID_HANDLE;
    if (machine.captures.Of(stream) != nullptr) return machine.captures.Record(event, stream);
    machine.captures.Forget(event);
    event->marker = std::make_shared<Marker>();
    if (event->shared != nullptr) event->marker->shown = event->shared->Record(&event->shown);
    std::shared_ptr<Operation> operation = MakeOperation("event record");
    operation->marker = event->marker;
    return machine.Submit(stream, std::move(operation));
  });
}

CUresult cuEventQuery(CUevent event) {
  return Call("cuEventQuery", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (!machine.scheduler.IsEvent(event)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult sticky = machine.contexts[static_cast<size_t>(event->device)]->sticky;
    if (sticky != CUDA_SUCCESS) return sticky;
    const CUresult refused = CheckProgress(machine, event);
    if (refused != CUDA_SUCCESS) return refused;
    if (const uint64_t elsewhere = event->RecordedElsewhere()) {
      return event->shared->IsPending(elsewhere) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    }
    if (event->marker == nullptr) return CUDA_SUCCESS;
    if (!event->marker->done) return CUDA_ERROR_NOT_READY;
    if (MustAskAgain(machine, *event->marker)) return CUDA_ERROR_NOT_READY;
    machine.races.Heard(event->marker->clock);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return Call("cuEventSynchronize", Needs::kInitialised, [&](Machine& machine, auto& lock) {
    if (!machine.scheduler.IsEvent(event)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult refused = CheckProgress(machine, event);
    if (refused != CUDA_SUCCESS) return refused;
    const int device = event->device;
    if (const uint64_t elsewhere = event->RecordedElsewhere()) {
      const std::shared_ptr<SharedEvent> shared = event->shared;
      lock.unlock();
      shared->Await(elsewhere);
      lock.lock();
    } else if (const std::shared_ptr<Marker> marker = event->marker) {
      machine.scheduler.WaitForMarker(lock, marker);
      machine.async_memory.HostWaitedFor(marker->reach);
    }
    return machine.contexts[static_cast<size_t>(device)]->sticky;
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return Call("cuEventElapsedTime", Needs::kInitialised, [&](Machine& machine, auto&) {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (CUevent event : {start, end}) {
      if (!machine.scheduler.IsEvent(event)) return CUDA_ERROR_INVALID_HANDLE;
      const CUresult refused = machine.captures.RefuseCaptured(event);
      if (refused != CUDA_SUCCESS) return refused;
      if (event->marker == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    }
    if (start->device != end->device) return CUDA_ERROR_INVALID_HANDLE;
    if (!start->marker->done || !end->marker->done) return CUDA_ERROR_NOT_READY;
    machine.races.HostWaitedFor(end->marker->clock);
    machine.races.HostWaitedFor(start->marker->clock);
    *milliseconds = static_cast<float>((end->marker->time_us - start->marker->time_us) / 1000.0);
    return CUDA_SUCCESS;
  });
}
