// The C ABI: blocks and scopes.
#include <cstddef>

#include "commpool/commpool.h"
#include "src/c_api/boundary.h"
#include "src/c_api/option_structs.h"
#include "src/c_api/process_runtime.h"

// NOLINTBEGIN: this file is the other side of the library
using namespace commpool;
using namespace commpool::internal;
// NOLINTEND

namespace {

Status StoreAddress(const Result<CUdeviceptr>& address, void** pointer) {
  if (!address.ok()) return address.status();
  *pointer = reinterpret_cast<void*>(*address);
  return Status();
}

Result<ScopeFilter> ParseFilter(commpool_filter filter) {
  switch (filter) {
    case COMMPOOL_FILTER_THREAD:
      return ScopeFilter::kThread;
    case COMMPOOL_FILTER_STREAM:
      return ScopeFilter::kStream;
    case COMMPOOL_FILTER_PROCESS:
      return ScopeFilter::kProcess;
  }
  return Status(StatusCode::kInvalidArgument,
                "scope options: filter " + std::to_string(filter) + " is none of THREAD, STREAM and PROCESS");
}

Result<Exhaustion> ParseExhaustion(commpool_exhaustion exhaustion) {
  switch (exhaustion) {
    case COMMPOOL_EXHAUSTION_ERROR:
      return Exhaustion::kError;
    case COMMPOOL_EXHAUSTION_NEXT_SCOPE:
      return Exhaustion::kNextScope;
  }
  return Status(StatusCode::kInvalidArgument,
                "scope options: exhaustion " + std::to_string(exhaustion) + " is none of ERROR and NEXT_SCOPE");
}

// Null is the defaults.
Result<ScopeRequest> ParseScopeOptions(const commpool_scope_options* given) {
  commpool_scope_options options;
  commpool_scope_options_init(&options);
  if (given != nullptr && !ReadOptions(*given, offsetof(commpool_scope_options, min_bytes), &options)) {
    return Status(StatusCode::kInvalidArgument,
                  "scope options: call commpool_scope_options_init before setting options");
  }
  const Result<ScopeFilter> filter = ParseFilter(options.filter);
  if (!filter.ok()) return filter.status();
  const Result<Exhaustion> exhaustion = ParseExhaustion(options.exhaustion);
  if (!exhaustion.ok()) return exhaustion.status();
  ScopeRequest request;
  request.filter = *filter;
  if (*filter == ScopeFilter::kStream) request.stream = KeyOfStream(options.stream);
  request.sizes = {options.min_bytes, options.max_bytes};
  request.exhaustion = *exhaustion;
  return request;
}

// What the caches of this thread cannot serve. Apart, so that the fast path saves no registers for it.
[[gnu::noinline]] commpool_status AllocateFromRuntime(int device, uint64_t bytes, CUstream_st* stream, void** pointer) {
  return Guarded([&]() -> Status {
    if (pointer == nullptr) return NullOutput();
    if (device < COMMPOOL_CURRENT_DEVICE) {
      return Status(StatusCode::kInvalidArgument, "device " + std::to_string(device) + " is negative");
    }
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return StoreAddress((*runtime)->Allocate(device, bytes, stream), pointer);
  });
}

[[gnu::noinline]] commpool_status AllocateFromPool(commpool_pool pool, uint64_t bytes, CUstream_st* stream,
                                                   void** pointer) {
  return Guarded([&]() -> Status {
    if (pointer == nullptr) return NullOutput();
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return StoreAddress((*runtime)->AllocateFrom(pool, bytes, stream), pointer);
  });
}

[[gnu::noinline]] commpool_status FreeToRuntime(void* pointer) {
  if (pointer == nullptr) return COMMPOOL_OK;
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return (*runtime)->Free(AddressOf(pointer));
  });
}

}  // namespace

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
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return (*runtime)->RecordStream(AddressOf(pointer), stream);
  });
}

commpool_status commpool_release_stream(CUstream_st* stream) {
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return (*runtime)->ReleaseStream(stream);
  });
}

void commpool_scope_options_init(commpool_scope_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_bytes = sizeof(*options);
  options->max_bytes = UINT64_MAX;
}

commpool_status commpool_scope_begin(commpool_pool pool, const commpool_scope_options* options, commpool_scope* scope) {
  return Guarded([&]() -> Status {
    if (scope == nullptr) return NullOutput();
    Result<ScopeRequest> request = ParseScopeOptions(options);
    if (!request.ok()) return request.status();
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    Result<std::shared_ptr<Pool>> found = (*runtime)->pools().Find(pool);
    if (!found.ok()) return found.status();
    request->pool = std::move(*found);
    Result<ScopeHandle> begun = (*runtime)->scopes().Begin(std::move(*request));
    if (!begun.ok()) return begun.status();
    *scope = *begun;
    return Status();
  });
}

commpool_status commpool_scope_end(commpool_scope scope) {
  return Guarded([&]() -> Status {
    Result<Runtime*> runtime = ProcessRuntime();
    if (!runtime.ok()) return runtime.status();
    return (*runtime)->scopes().End(scope);
  });
}
