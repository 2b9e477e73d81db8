// The C ABI: blocks.
#include <string>

#include "commpool/commpool.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/open_scopes.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

// Checks everything about a target but whether it exists.
Status CheckTarget(Target target) {
  if (target.kind() == Target::Kind::kPool || target.device() >= 0) return Status();
  const std::string named = "device " + std::to_string(target.device());
  if (target.kind() == Target::Kind::kScopes) return InvalidArgument(named, ": name the one allocated on");
  if (target.device() == COMMPOOL_CURRENT_DEVICE) return Status();
  return InvalidArgument(named, " is negative");
}

// For requests that the thread's recent caches cannot serve. A separate function, so that the fast path saves no
// registers.
[[gnu::noinline]] commpool_status AllocateSlowly(Target target, uint64_t bytes, CUstream_st* stream, void** pointer,
                                                 const char* name = __builtin_FUNCTION()) {
  bool caught = true;
  const auto allocate = [&](Runtime& runtime) -> Status {
    if (pointer == nullptr) return NullOutput();
    COMMPOOL_TRY(CheckTarget(target));
    const Result<CUdeviceptr> address = runtime.Allocate(target, bytes, stream);
    if (address.ok()) {
      *pointer = reinterpret_cast<void*>(*address);
      return Status();
    }
    caught = address.status().code() != StatusCode::kNotCaught;
    return caught ? address.status() : Status();
  };
  const commpool_status status = WithRuntime(allocate, name);
  return caught ? status : COMMPOOL_NOT_CAUGHT;
}

// Whether a cached block, or a large one of free memory, serves the request: the first steps of src/library/README.md.
[[gnu::always_inline]] inline bool AllocateAtOnce(Target target, uint64_t bytes, CUstream_st* stream, void** pointer,
                                                  const char* name = __builtin_FUNCTION()) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime == nullptr || pointer == nullptr) return false;
  try {
    const CUdeviceptr address = runtime->AllocateAtOnce(target, bytes, stream);
    if (address != 0) *pointer = reinterpret_cast<void*>(address);
    return address != 0;
  } catch (...) {
    return ReportException(name) == COMMPOOL_OK;  // the slow way then fails likewise
  }
}

[[gnu::noinline]] commpool_status FreeSlowly(void* pointer) {
  if (pointer == nullptr) return COMMPOOL_OK;
  // A garbage collector, or a destructor, frees wherever it runs.
  const UserFunctionKind* const running = UserFunction::Running();
  if (running != nullptr && !running->may_free) [[unlikely]] {
    OpenedProcessRuntime()->PostponeFree(AddressOf(pointer));  // it runs the function
    return COMMPOOL_OK;
  }
  return WithRuntime([&](Runtime& runtime) { return runtime.Free(AddressOf(pointer)); }, "commpool_free",
                     CallKind::kFree);
}

}  // namespace

commpool_status commpool::internal::AllocateCaught(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  const Target target = Target::ScopesOf(device);
  if (AllocateAtOnce(target, bytes, stream, pointer)) return COMMPOOL_OK;
  Runtime* const runtime = OpenedProcessRuntime();
  const bool valid = runtime != nullptr && pointer != nullptr && device >= 0;
  if (valid && !runtime->Catches(device, bytes, stream)) return COMMPOOL_NOT_CAUGHT;
  return AllocateSlowly(target, bytes, stream, pointer, "commpool_allocate_in_scope");
}

commpool_status commpool_allocate(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  const Target target = Target::Device(device);
  if (AllocateAtOnce(target, bytes, stream, pointer)) return COMMPOOL_OK;
  return AllocateSlowly(target, bytes, stream, pointer);
}

commpool_status commpool_pool_allocate(commpool_pool pool, uint64_t bytes, CUstream_st* stream, void** pointer) {
  const Target target = Target::Pool(pool);
  if (AllocateAtOnce(target, bytes, stream, pointer)) return COMMPOOL_OK;
  return AllocateSlowly(target, bytes, stream, pointer);
}

commpool_status commpool_free(void* pointer) {
  Runtime* const runtime = OpenedProcessRuntime();
  if (runtime != nullptr && runtime->FreeCached(AddressOf(pointer))) return COMMPOOL_OK;
  return FreeSlowly(pointer);
}

commpool_status commpool_record_stream(void* pointer, CUstream_st* stream) {
  return WithRuntime([&](Runtime& runtime) { return runtime.RecordStream(AddressOf(pointer), stream); });
}

commpool_status commpool_promise_stream(CUstream_st* stream) {
  return WithRuntime([&](Runtime& runtime) { return runtime.PromiseStream(stream); });
}

commpool_status commpool_release_stream(CUstream_st* stream) {
  return WithRuntime([&](Runtime& runtime) { return runtime.ReleaseStream(stream); });
}
