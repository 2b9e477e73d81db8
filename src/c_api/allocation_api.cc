// The C ABI: blocks.
#include <optional>
#include <string>

#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/open_scopes.h"
#include "src/c_api/process_runtime.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

Status StoreAddress(const Result<CUdeviceptr>& address, void** pointer) {
  if (!address.ok()) return StatusOf(address);
  *pointer = reinterpret_cast<void*>(*address);
  return Status();
}

// By the short way: OK, a failure, or nothing where the long way has to.
template <typename Allocate>
std::optional<commpool_status> AllocateAtOnce(void** pointer, Allocate allocate) noexcept {
  try {
    Runtime* const runtime = OpenedProcessRuntime();
    if (runtime == nullptr || pointer == nullptr || !HostReserve::Fill()) return std::nullopt;
    const CUdeviceptr address = allocate(*runtime);
    if (address == 0) return std::nullopt;
    *pointer = reinterpret_cast<void*>(address);
    return COMMPOOL_OK;
  } catch (...) {
    return ReportException();
  }
}

std::optional<commpool_status> FreeAtOnce(void* pointer) noexcept {
  try {
    Runtime* const runtime = OpenedProcessRuntime();
    if (runtime == nullptr || !HostReserve::Fill()) return std::nullopt;
    return runtime->FreeAtOnce(AddressOf(pointer)) ? std::make_optional(COMMPOOL_OK) : std::nullopt;
  } catch (...) {
    return ReportException();
  }
}

// What the caches that this thread used lately cannot serve. Apart, so that the fast path saves no registers for it.
[[gnu::noinline]] commpool_status AllocateFromRuntime(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  const auto at_once =
      AllocateAtOnce(pointer, [&](Runtime& runtime) { return runtime.AllocateAtOnce(device, bytes, stream); });
  if (at_once) return *at_once;
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (pointer == nullptr) return NullOutput();
    if (device < COMMPOOL_CURRENT_DEVICE) {
      return Status(StatusCode::kInvalidArgument, "device " + std::to_string(device) + " is negative");
    }
    return StoreAddress(runtime.Allocate(device, bytes, stream), pointer);
  });
}

[[gnu::noinline]] commpool_status AllocateFromPool(commpool_pool pool, uint64_t bytes, CUstream_st* stream,
                                                   void** pointer) {
  const auto at_once =
      AllocateAtOnce(pointer, [&](Runtime& runtime) { return runtime.AllocateAtOnceFrom(pool, bytes, stream); });
  if (at_once) return *at_once;
  return WithRuntime([&](Runtime& runtime) -> Status {
    if (pointer == nullptr) return NullOutput();
    return StoreAddress(runtime.AllocateFrom(pool, bytes, stream), pointer);
  });
}

[[gnu::noinline]] commpool_status FreeToRuntime(void* pointer) {
  if (pointer == nullptr) return COMMPOOL_OK;
  if (const auto at_once = FreeAtOnce(pointer)) return *at_once;
  return WithRuntime([&](Runtime& runtime) { return runtime.Free(AddressOf(pointer)); });
}

[[gnu::noinline]] commpool_status AllocateCaughtFromRuntime(int device, uint64_t bytes, CUstream_st* stream,
                                                            void** pointer) {
  bool caught = true;
  const commpool_status status = WithRuntime([&](Runtime& runtime) -> Status {
    if (pointer == nullptr) return NullOutput();
    if (device < 0) {
      return Status(StatusCode::kInvalidArgument, "device " + std::to_string(device) + ": name the one allocated on");
    }
    const std::optional<Result<CUdeviceptr>> address = runtime.AllocateInScope(device, bytes, stream);
    caught = address.has_value();
    return caught ? StoreAddress(*address, pointer) : Status();
  });
  return caught ? status : COMMPOOL_NOT_CAUGHT;
}

}  // namespace

commpool_status commpool::internal::AllocateCaught(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime == nullptr || pointer == nullptr || device < 0) {
    return AllocateCaughtFromRuntime(device, bytes, stream, pointer);
  }
  const PoolHandle routed = runtime->scopes().RouteAtOnce(device, bytes, stream);
  if (routed == 0) {
    runtime->scopes().NoteUncaught();
    return COMMPOOL_NOT_CAUGHT;
  }
  const CUdeviceptr address = runtime->AllocateCachedFrom(routed, bytes, stream);
  if (address == 0) {
    const auto at_once = AllocateAtOnce(pointer, [&](Runtime& opened) {
      return routed == kOnlyTheTableKnows ? CUdeviceptr{0} : opened.AllocateAtOnceFrom(routed, bytes, stream);
    });
    return at_once ? *at_once : AllocateCaughtFromRuntime(device, bytes, stream, pointer);
  }
  *pointer = reinterpret_cast<void*>(address);
  return COMMPOOL_OK;
}

commpool_status commpool_allocate(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime == nullptr || pointer == nullptr) return AllocateFromRuntime(device, bytes, stream, pointer);
  const CUdeviceptr address = runtime->AllocateCached(device, bytes, stream);
  if (address == 0) return AllocateFromRuntime(device, bytes, stream, pointer);
  *pointer = reinterpret_cast<void*>(address);
  return COMMPOOL_OK;
}

commpool_status commpool_pool_allocate(commpool_pool pool, uint64_t bytes, CUstream_st* stream, void** pointer) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime == nullptr || pointer == nullptr) return AllocateFromPool(pool, bytes, stream, pointer);
  const CUdeviceptr address = runtime->AllocateCachedFrom(pool, bytes, stream);
  if (address == 0) return AllocateFromPool(pool, bytes, stream, pointer);
  *pointer = reinterpret_cast<void*>(address);
  return COMMPOOL_OK;
}

commpool_status commpool_free(void* pointer) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime != nullptr && runtime->FreeCached(AddressOf(pointer))) return COMMPOOL_OK;
  return FreeToRuntime(pointer);
}

commpool_status commpool_record_stream(void* pointer, CUstream_st* stream) {
  return WithRuntime([&](Runtime& runtime) { return runtime.RecordStream(AddressOf(pointer), stream); });
}

commpool_status commpool_release_stream(CUstream_st* stream) {
  return WithRuntime([&](Runtime& runtime) { return runtime.ReleaseStream(stream); });
}
