// PyTorch's caching allocator behind C functions, for `commpool bench hot` and `commpool replay`, which open this
// library at run time. build_torch_allocator.sh builds it where PyTorch is installed; Bazel does not.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#endif

#include <cstddef>
#include <cstdio>
#include <exception>

#define BENCH_API extern "C" __attribute__((visibility("default")))

namespace allocator = c10::cuda::CUDACachingAllocator;

// Exported by libc10_cuda, and declared in no header.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*function)(DeviceIndex));
}

BENCH_API void bench_torch_initialise() {
  allocator::init(1);  // device 0
  // libtorch_cuda would answer this. The allocator records events of blocks with several streams only on devices in
  // use.
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex device) { return device == 0; });
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
  c10::cuda::detail::init_p2p_access_cache(c10::cuda::device_count());  // expandable segments ask for it
#endif
}

// Null for out of memory.
BENCH_API void* bench_torch_allocate(size_t bytes, void* stream) {
  try {
    return allocator::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  } catch (const std::exception& error) {
    static bool said = false;  // printed once: out of memory, or what PyTorch lacks here
    if (!said) std::fprintf(stderr, "PyTorch: %s\n", error.what());
    said = true;
    return nullptr;
  }
}

BENCH_API void bench_torch_free(void* block) { allocator::raw_delete(block); }

BENCH_API void bench_torch_record_stream(void* block, void* stream) {
  c10::DataPtr data(block, block, allocator::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
  allocator::recordStream(data, c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), 0));
  static_cast<void>(data.release_context());  // the block stays allocated
}

BENCH_API void bench_torch_empty_cache() { allocator::emptyCache(); }
