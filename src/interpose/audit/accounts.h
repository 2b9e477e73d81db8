// What calls mean for the books. An account has what happens before the driver's call and after it, with the call's own
// arguments; audited_functions.inc names each function's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "src/interpose/audit/event.h"

namespace commpool::audit {

// What `commpool run` does before a call and after its success, and which device it asks for room where memory ran out.
constexpr int kCurrentDevice = -2;  // the calling thread's

struct Account {
  template <typename... Arguments>
  static void NoteBefore(Arguments...) {}
  template <typename... Arguments>
  static void NoteDone(Arguments...) {}
  template <typename... Arguments>
  static int RoomOn(Arguments...) {
    return kCurrentDevice;
  }
  template <typename... Arguments>
  static void Before(Event&, Arguments...) {}
  template <typename... Arguments>
  static void After(Event&, Arguments...) {}
};

// Who asked, for what, where: a row of the books.
RowKey RowOf(What what, int device);
// Enters what a call made; a failed call counts as such.
void EnterMade(Event& event, What what, uint64_t key, uint64_t bytes, int device);
// Before a call that ends what has this key, and after it.
void TakeEnded(Event& event, What what, uint64_t key);
void EnterEnded(Event& event);
// Around a call whose memory only the driver knows.
void MeasureBefore(Event& event, int device);
// What the call took; nothing where the driver does not tell.
std::optional<int64_t> MeasuredBytes(const Event& event);
void MeasureAfter(Event& event, What what);

struct Initialisation : Account {
  static void NoteDone(unsigned flags);
  static void After(Event& event, unsigned flags);
};

struct MadeMemory : Account {
  static void After(Event& event, CUdeviceptr* pointer, size_t bytes);
  static void After(Event& event, CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height, unsigned element);
};

struct MadeManaged : Account {
  static void After(Event& event, CUdeviceptr* pointer, size_t bytes, unsigned flags);
};

struct MadeInPool : Account {
  static void After(Event& event, CUdeviceptr* pointer, size_t bytes, CUstream stream);
  static void After(Event& event, CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream);
};

struct EndedPool : Account {
  static void Before(Event& event, CUmemoryPool pool);
};

// Of cuMemAlloc, managed, or of a pool: cuMemFree takes all of them.
struct EndedMemory : Account {
  static void Before(Event& event, CUdeviceptr pointer);
  static void Before(Event& event, CUdeviceptr pointer, CUstream) { Before(event, pointer); }
  template <typename... Arguments>
  static void After(Event& event, Arguments...) {
    EnterEnded(event);
  }
};

struct OfTheHost : Account {
  template <typename... Arguments>
  static int RoomOn(Arguments...) {
    return kNoDevice;
  }
};

struct MadeHostMemory : OfTheHost {
  static void After(Event& event, void** pointer, size_t bytes);
  static void After(Event& event, void** pointer, size_t bytes, unsigned) { After(event, pointer, bytes); }
};

struct PinnedHostMemory : OfTheHost {
  static void After(Event& event, void* pointer, size_t bytes, unsigned flags);
};

struct EndedHostMemory : Account {
  static void Before(Event& event, void* pointer);
  static void After(Event& event, void*) { EnterEnded(event); }
};

struct ReservedAddresses : Account {
  static void After(Event& event, CUdeviceptr* pointer, size_t bytes, size_t, CUdeviceptr, unsigned long long);
};

struct EndedAddresses : Account {
  static void Before(Event& event, CUdeviceptr pointer, size_t bytes);
  static void After(Event& event, CUdeviceptr, size_t) { EnterEnded(event); }
};

struct MadePhysical : Account {
  static int RoomOn(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp* properties, unsigned long long);
  static void After(Event& event, CUmemGenericAllocationHandle* handle, size_t bytes,
                    const CUmemAllocationProp* properties, unsigned long long flags);
};

struct ReleasedHandle : Account {
  static void Before(Event& event, CUmemGenericAllocationHandle handle);
  static void After(Event& event, CUmemGenericAllocationHandle handle);
};

struct RetainedHandle : Account {
  static void After(Event& event, CUmemGenericAllocationHandle* handle, void* address);
};

struct Mapped : Account {
  static void After(Event& event, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
};

struct Unmapped : Account {
  static void Before(Event& event, CUdeviceptr address, size_t bytes);
  static void After(Event& event, CUdeviceptr address, size_t bytes);
};

struct GrantedAccess : Account {
  static void After(Event& event, CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count);
};

struct ExportedHandle : Account {
  static void After(Event& event, void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
};

struct ImportedHandle : Account {
  static void After(Event& event, CUmemGenericAllocationHandle* handle, void*, CUmemAllocationHandleType);
};

struct ExportedAddress : Account {
  static void After(Event& event, CUipcMemHandle* handle, CUdeviceptr pointer);
};

struct OpenedAddress : Account {
  static void After(Event& event, CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags);
};

struct ClosedAddress : Account {
  static void Before(Event& event, CUdeviceptr pointer);
  static void After(Event& event, CUdeviceptr) { EnterEnded(event); }
};

// The context comes first, the device last.
struct MadeContext : Account {
  template <typename... Between>
  static void Before(Event& event, CUcontext*, Between... between) {
    BeforeContext(event, std::get<sizeof...(Between) - 1>(std::tie(between...)));
  }
  template <typename... Between>
  static void NoteDone(CUcontext* context, Between... between) {
    NoteContext(*context, RoomOn(context, between...));
  }
  template <typename... Between>
  static int RoomOn(CUcontext*, Between... between) {
    return std::get<sizeof...(Between) - 1>(std::tie(between...));
  }
  template <typename... Between>
  static void After(Event& event, CUcontext* context, Between... between) {
    AfterContext(event, context, std::get<sizeof...(Between) - 1>(std::tie(between...)));
  }

 private:
  static void NoteContext(CUcontext context, CUdevice device);
  static void BeforeContext(Event& event, CUdevice device);
  static void AfterContext(Event& event, CUcontext* context, CUdevice device);
};

struct ReleasedDevice : Account {
  static void NoteDone(CUdevice device);
};

struct EndedContext : Account {
  static void NoteBefore(CUcontext context);
};

struct ResetDevice : ReleasedDevice {
  static void After(Event& event, CUdevice device);
};

struct ChangedContext : Account {
  template <typename... Arguments>
  static void Before(Event& event, Arguments...) {
    MeasureBefore(event, kNoDevice);
  }
  template <typename... Arguments>
  static void After(Event& event, Arguments...) {
    MeasureAfter(event, What::kContext);
  }
};

struct MadeStream : ChangedContext {
  template <typename... Arguments>
  static void NoteDone(CUstream* stream, Arguments...) {
    NoteStream(*stream);
  }

 private:
  static void NoteStream(CUstream stream);
};

struct EndedStream : Account {
  static void NoteBefore(CUstream stream);
};

// Kernels are loaded by the first call that names them, in part: so those that look them up are measured too.
struct LoadedCode : Account {
  template <typename... Arguments>
  static void Before(Event& event, Arguments...) {
    MeasureBefore(event, kNoDevice);
  }
  template <typename... Arguments>
  static void After(Event& event, Arguments...) {
    MeasureAfter(event, What::kCode);
  }
};

}  // namespace commpool::audit
