// Buffer: a block of device memory that frees itself, and the free functions that allocate from the innermost scope.
//
//   Buffer gradients = commpool::allocate(bytes, stream).value();
//   kernel<<<..., stream>>>(gradients.as<float>(), ...);
//
// A Buffer may move between threads and be destroyed on any; one thread uses it at a time. Freeing is in stream order:
// work already submitted to its stream, and to streams given to `record_stream`, may still use the memory.
#ifndef COMMPOOL_BUFFER_H_
#define COMMPOOL_BUFFER_H_

#include <cstdint>
#include <utility>

#include "commpool/commpool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

using Stream = CUstream_st*;
using Communicator = ncclComm*;

// This thread's current device, or the device of the stream.
inline constexpr int kCurrentDevice = COMMPOOL_CURRENT_DEVICE;

class Buffer {
 public:
  Buffer() = default;
  // Takes over a block that commpool allocated.
  Buffer(void* data, std::uint64_t bytes) : data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() { commpool_free(data_); }

  // Device addresses: the host must not read through them.
  void* data() const { return data_; }
  template <typename Element>
  Element* as() const {
    return static_cast<Element*>(data_);
  }
  // As asked for.
  std::uint64_t bytes() const { return bytes_; }

  // Notes that another stream uses the block: after submitting that work, before the free.
  Status record_stream(Stream stream) const { return detail::FromC(commpool_record_stream(data_, stream)); }

  // Frees now and says what failed.
  Status free() {
    bytes_ = 0;
    return detail::FromC(commpool_free(std::exchange(data_, nullptr)));
  }

  // Hands the block to the caller, who gives it to commpool_free.
  [[nodiscard]] void* release() {
    bytes_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Allocates from the innermost scope that catches it, else from the device's default pool. See commpool_allocate.
inline Result<Buffer> allocate(std::uint64_t bytes, Stream stream, int device = kCurrentDevice) {
  void* data = nullptr;
  Status status = detail::FromC(commpool_allocate(device, bytes, stream, &data));
  if (!status.ok()) return status;
  return Buffer(data, bytes);
}

// Call it before a stream is destroyed. See commpool_release_stream.
inline Status release_stream(Stream stream) { return detail::FromC(commpool_release_stream(stream)); }

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_BUFFER_H_
