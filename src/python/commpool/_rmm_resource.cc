// A pool as an RMM resource for RMM's Python package, without Python on the way: what commpool.rmm compiles where the
// headers of the librmm that is installed are, once for its version. `place` puts the resource into an object of
// Python's rmm.mr.DeviceMemoryResource, whose one member is a reference to one.
#include <dlfcn.h>

#include <cstddef>
#include <optional>
#include <rmm/error.hpp>
#include <rmm/resource_ref.hpp>

#include "commpool/mr.h"

// RMM's package has a runtime of its own inside; none is there for others to link. The driver answers for the one
// function that is called; what is left of the others is not called.
#pragma weak cudaGetErrorString
#pragma weak cudaSetDevice
#pragma weak cudaStreamSynchronize

namespace {

// The object's member, as RMM's package declares it to Cython: which needs types that begin as nothing, and so has it
// twice over.
struct Reference {
  std::optional<rmm::device_async_resource_ref> held;
};
using Member = std::optional<Reference>;

template <typename Function>
Function OfDriver(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name));
}

// As PoolResource, with RMM's own exception and without the runtime.
class Resource : public commpool::PoolResource {
 public:
  explicit Resource(commpool::PoolResource pool) : PoolResource(pool) {}

  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) const {
    try {
      return PoolResource::allocate(stream, bytes, alignment);
    } catch (const commpool::BadAlloc& error) {
      throw rmm::out_of_memory(std::string(error.what()));  // what RMM's adaptors catch
    }
  }
  // On the current device, as RMM demands of its callers.
  void* allocate_sync(std::size_t bytes, std::size_t alignment) const {
    static const auto synchronise = OfDriver<int (*)(cudaStream_t)>("cuStreamSynchronize");
    void* const pointer = allocate(cuda::stream_ref(cudaStreamLegacy), bytes, alignment);
    if (synchronise != nullptr && synchronise(cudaStreamLegacy) == 0) return pointer;
    deallocate_sync(pointer, bytes, alignment);
    throw rmm::cuda_error("commpool: waiting for the legacy stream failed");
  }
};

}  // namespace

extern "C" {

// PoolResource asks for it where a block is freed on a default stream.
cudaError_t cudaGetDevice(int* device) {
  static const auto get = OfDriver<int (*)(int*)>("cuCtxGetDevice");
  return get != nullptr && get(device) == 0 ? cudaSuccess : cudaErrorDeviceUninitialized;
}

// What the object's member takes: Python compares it with what RMM's own class has.
__attribute__((visibility("default"))) std::size_t commpool_rmm_size() { return sizeof(Member); }

// REQUIRES: `member` is that of an object which has none yet. RMM keeps copies at will; the resource is never deleted.
__attribute__((visibility("default"))) void commpool_rmm_place(void* member, commpool_pool pool, int device) {
  auto* const resource =
      new Resource(pool != 0 ? commpool::PoolResource::of_handle(pool) : commpool::PoolResource::of_scopes(device));
  *static_cast<Member*>(member) = Reference{rmm::device_async_resource_ref(*resource)};
}

}  // extern "C"
