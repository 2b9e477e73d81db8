// Pools as memory resources of CUDA's C++ libraries (the concepts of cuda::mr), and such resources as pools' backings.
//
//   PoolResource resource(pool);
//   rmm::device_buffer rows(bytes, stream, resource);                            // and cuDF, which stands on RMM
//   thrust::sort(thrust::cuda::par(ThrustScratch(resource, stream)).on(stream), begin, end);
//
//   ResourceBacking upstream(rmm::mr::cuda_async_memory_resource{});             // the reverse: it makes the segments
//   Pool pool = Pool::create({.backing = Backing::kUser, .user = upstream}).value();
//
// Header-only, C++17. The one header here that includes CUDA's headers: CCCL 3.2 or later (of the toolkit from 13.2 on,
// or of the wheel nvidia-cuda-cccl, whose include folder goes before the toolkit's) and the runtime, which the program
// links as CCCL does.
#ifndef COMMPOOL_MR_H_
#define COMMPOOL_MR_H_

#ifndef __cpp_exceptions
#error "commpool/mr.h needs exceptions: CCCL's resources report failures by them"
#endif

#include <cuda/version>
#if CCCL_VERSION < 3002000
#error "commpool/mr.h needs CCCL 3.2 or later: put the include folder of a newer one before the toolkit's"
#endif

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "commpool/commpool.h"
#include "commpool/pool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

// Thrown where a pool has no memory: a std::bad_alloc, as the concept asks for, with commpool's sentence.
class BadAlloc : public std::bad_alloc {
 public:
  explicit BadAlloc(const Status& status) : error_(status) {}
  const char* what() const noexcept override { return error_.what(); }
  StatusCode code() const { return error_.code(); }

 private:
  Error error_;  // a std::runtime_error: copying it does not throw
};

namespace detail {

// Makes a device current while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : failure_(cudaGetDevice(&before_)) {
    if (failure_ == cudaSuccess) failure_ = cudaSetDevice(device);
  }
  ~CurrentDevice() { static_cast<void>(cudaSetDevice(before_)); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t failure() const { return failure_; }

 private:
  int before_ = 0;
  cudaError_t failure_;
};

}  // namespace detail

// A pool's memory in stream order. A value: copies are the same resource. It does not own the pool: after the pool's
// end blocks may still be freed, and an allocation throws. Any thread.
//
// A failed free cannot throw: it prints a line on stderr and leaves the block to its owner. It fails for memory of
// other allocators, memory freed before, and blocks of another pool.
class PoolResource {
 public:
  using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;

  explicit PoolResource(const Pool& pool) : PoolResource(of_handle(pool.handle())) {}
  // By the pool's handle, for plug-ins of other languages.
  static PoolResource of_handle(commpool_pool pool) {
    PoolResource resource(kCurrentDevice);
    resource.pool_ = pool;
    return resource;
  }
  // Allocates from the calling thread's scopes, else from the default pool of a device (kCurrentDevice: the stream's).
  static PoolResource of_scopes(int device = kCurrentDevice) { return PoolResource(device); }

  // The block may be used on `stream` at once. Throws BadAlloc where there is no memory, else Error. `alignment` is a
  // power of two up to 2 MiB; blocks begin at multiples of 512, more costs as much of the pool. Null for 0 bytes.
  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = kAlignment) const {
    return Allocate(stream.get(), bytes, alignment);
  }
  // Work that `stream` (of the allocation or another) has by now may still use the block; the next user waits for it.
  void deallocate(cuda::stream_ref stream, void* pointer, std::size_t /*bytes*/,
                  std::size_t /*alignment*/ = kAlignment) const noexcept {
    Free(pointer, stream.get());
  }

  // The block may be used on every stream at once: waits for what used its memory before.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) const {
    void* const pointer = Allocate(cudaStreamLegacy, bytes, alignment);
    const cudaError_t failure = pointer == nullptr ? cudaSuccess : Settle(pointer);
    if (failure == cudaSuccess) return pointer;
    Free(pointer, cudaStreamLegacy);
    throw Error(Status(StatusCode::kDriverError, std::string("PoolResource::allocate_sync: waiting for the device: ") +
                                                     cudaGetErrorString(failure)));
  }
  // REQUIRES: no work uses the block any more.
  void deallocate_sync(void* pointer, std::size_t /*bytes*/, std::size_t /*alignment*/ = kAlignment) const noexcept {
    Free(pointer, cudaStreamLegacy);
  }

  friend bool operator==(const PoolResource& left, const PoolResource& right) {
    return left.pool_ == right.pool_ && left.device_ == right.device_;
  }
  friend bool operator!=(const PoolResource& left, const PoolResource& right) { return !(left == right); }
  friend constexpr void get_property(const PoolResource&, cuda::mr::device_accessible) noexcept {}

 private:
  static constexpr std::size_t kAlignment = 256;  // what CUDA's own allocators promise, and libraries assume

  explicit PoolResource(int device) : device_(device) {}

  void* Allocate(Stream stream, std::size_t bytes, std::size_t alignment) const {
    if (bytes == 0) return nullptr;
    Result<Buffer> buffer = detail::Allocate(bytes, {alignment}, [&](std::uint64_t padded, void** block) {
      return pool_ != 0 ? commpool_pool_allocate(pool_, padded, stream, block)
                        : commpool_allocate(device_, padded, stream, block);
    });
    if (!buffer.ok()) Throw(buffer.status());
    void* const data = buffer->data();
    static_cast<void>(buffer->release());  // `Free` finds the block by any address in it
    return data;
  }

  [[noreturn]] static void Throw(const Status& status) {
    if (status.code() == StatusCode::kOutOfMemory || status.code() == StatusCode::kExhausted) throw BadAlloc(status);
    throw Error(status);
  }

  // Waits for the streams that the block may have been served for: the default streams of the device that is current,
  // and of the block's own.
  static cudaError_t Settle(void* pointer) {
    commpool_block block;
    if (commpool_block_of(pointer, &block, sizeof(block)) != COMMPOOL_OK) return cudaErrorInvalidValue;
    const cudaError_t failure = cudaStreamSynchronize(cudaStreamLegacy);
    if (failure != cudaSuccess) return failure;
    const detail::CurrentDevice current(block.device);
    return current.failure() != cudaSuccess ? current.failure() : cudaStreamSynchronize(cudaStreamLegacy);
  }

  void Free(void* pointer, Stream stream) const noexcept {
    if (pointer == nullptr) return;
    commpool_block block;
    if (commpool_block_of(pointer, &block, sizeof(block)) != COMMPOOL_OK) {
      Report(pointer, "it is in no live block: it was freed before, or is another allocator's");
    } else if (pool_ != 0 && block.pool != 0 && block.pool != pool_) {
      Report(pointer, "it is a block of another pool, which keeps it");
    } else if (commpool_record_stream(block.pointer, stream) != COMMPOOL_OK) {
      Report(pointer, commpool_last_error());
    } else if (commpool_free(block.pointer) != COMMPOOL_OK) {
      Report(pointer, commpool_last_error());
    }
  }

  static void Report(const void* pointer, const char* why) noexcept {
    std::fprintf(stderr, "commpool: PoolResource cannot free %p: %s\n", pointer, why);
  }

  commpool_pool pool_ = 0;  // 0: what scopes catch
  int device_ = 0;          // then, of that device
};

static_assert(cuda::mr::resource_with<PoolResource, cuda::mr::device_accessible>);

// Thrust's temporary memory, in stream order: an allocator for thrust::cuda::par. Throws as PoolResource does.
class ThrustScratch {
 public:
  using value_type = char;

  ThrustScratch(PoolResource resource, cuda::stream_ref stream) : resource_(resource), stream_(stream) {}

  char* allocate(std::ptrdiff_t bytes) const {
    return static_cast<char*>(resource_.allocate(stream_, static_cast<std::size_t>(bytes)));
  }
  void deallocate(char* pointer, std::size_t bytes) const noexcept { resource_.deallocate(stream_, pointer, bytes); }

 private:
  PoolResource resource_;
  cuda::stream_ref stream_;
};

// Makes a memory resource the backing of a kUser pool: it makes the pool's segments, and must outlive their last block.
// Its memory must begin at multiples of 512, as that of every CUDA allocator does.
template <typename Resource>
class ResourceBacking {
  static_assert(cuda::mr::synchronous_resource_with<Resource, cuda::mr::device_accessible>);

 public:
  explicit ResourceBacking(Resource resource) : resource_(std::move(resource)) {}
  ResourceBacking(const ResourceBacking&) = delete;
  ResourceBacking& operator=(const ResourceBacking&) = delete;

  operator UserFunctions() { return {Allocate, Free, this}; }

  // What the resource threw last; empty where it threw nothing. The pool's own error only knows that there is no
  // memory.
  std::string last_failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_failure_;
  }

 private:
  static constexpr std::size_t kAsked = 256;  // resources refuse more
  static constexpr std::size_t kNeeded = 512;

  // C functions: nothing is thrown through them.
  static void* Allocate(std::ptrdiff_t bytes, int device, Stream /*stream*/, void* context) {
    auto* const self = static_cast<ResourceBacking*>(context);
    const auto count = static_cast<std::size_t>(bytes);
    try {
      const detail::CurrentDevice current(device);
      void* const pointer = self->resource_.allocate_sync(count, kAsked);
      if (reinterpret_cast<std::uintptr_t>(pointer) % kNeeded == 0) return pointer;
      self->resource_.deallocate_sync(pointer, count, kAsked);
      self->Note("the resource gave memory that does not begin at a multiple of 512");
    } catch (const std::exception& error) {
      self->Note(error.what());
    } catch (...) {
      self->Note("the resource threw what is no std::exception");
    }
    return nullptr;
  }

  static void Free(void* pointer, std::ptrdiff_t bytes, int device, Stream /*stream*/, void* context) {
    const detail::CurrentDevice current(device);
    static_cast<ResourceBacking*>(context)->resource_.deallocate_sync(pointer, static_cast<std::size_t>(bytes), kAsked);
  }

  void Note(const char* why) noexcept {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      last_failure_ = why;
    } catch (...) {
      // No host memory for a sentence: the pool's error has to do.
    }
  }

  Resource resource_;
  mutable std::mutex mutex_;
  std::string last_failure_;
};

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_MR_H_
