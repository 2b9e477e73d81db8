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
#include <string>
#include <utility>

#include "commpool/commpool.h"
#include "commpool/status.h"

namespace commpool {
inline namespace v1 {

using Stream = CUstream_st*;
using Communicator = ncclComm*;

// This thread's current device, or the device of the stream.
inline constexpr int kCurrentDevice = COMMPOOL_CURRENT_DEVICE;

// Where an allocation begins: a power of two up to 2 MiB. Blocks begin at multiples of 512 anyway; more costs up to
// that many bytes of the pool. PoolOptions::alignment_bytes, for all blocks of a pool, costs nothing.
struct Alignment {
  std::uint64_t bytes = 1;
};

class Buffer {
 public:
  Buffer() = default;
  // Takes over a block that commpool allocated, from `release()` or commpool_allocate. data() is the first address in
  // it with that alignment; `bytes` count from there.
  static Buffer adopt(void* block, std::uint64_t bytes, Alignment alignment = {}) {
    const auto start = reinterpret_cast<std::uintptr_t>(block);
    const std::uintptr_t aligned = (start + alignment.bytes - 1) & ~(std::uintptr_t{alignment.bytes} - 1);
    return Buffer(block, reinterpret_cast<void*>(aligned), bytes);
  }
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() { commpool_free(block_); }

  // Device addresses: the host must not read through them.
  void* data() const { return data_; }
  template <typename Element>
  Element* as() const {
    return static_cast<Element*>(data_);
  }
  // As asked for.
  std::uint64_t bytes() const { return bytes_; }

  // Notes that another stream uses the block: after submitting that work, before the free.
  Status record_stream(Stream stream) const { return detail::FromC(commpool_record_stream(block_, stream)); }

  // Frees now and says what failed.
  Status free() { return detail::FromC(commpool_free(release())); }

  // Hands the start of the block to the caller, who gives it to commpool_free. It is data() unless an alignment was
  // asked for.
  [[nodiscard]] void* release() {
    data_ = nullptr;
    bytes_ = 0;
    return std::exchange(block_, nullptr);
  }

 private:
  Buffer(void* block, void* data, std::uint64_t bytes) : block_(block), data_(data), bytes_(bytes) {}

  void* block_ = nullptr;
  void* data_ = nullptr;  // in the block, at the alignment that was asked for
  std::uint64_t bytes_ = 0;
};

namespace detail {

// `call(bytes, &block)` allocates. Blocks begin at multiples of 512, segments at those of 2 MiB.
template <typename Call>
Result<Buffer> Allocate(std::uint64_t bytes, Alignment alignment, Call call) {
  constexpr std::uint64_t kMost = std::uint64_t{2} << 20;
  const std::uint64_t wanted = alignment.bytes;
  if (wanted == 0 || (wanted & (wanted - 1)) != 0 || wanted > kMost) {
    return Status(StatusCode::kInvalidArgument,
                  "alignment " + std::to_string(wanted) + " is no power of two from 1 to 2 MiB");
  }
  const std::uint64_t padding = wanted > 512 && bytes != 0 ? wanted - 512 : 0;
  void* block = nullptr;
  Status status = FromC(call(bytes > UINT64_MAX - padding ? UINT64_MAX : bytes + padding, &block));
  if (!status.ok()) return status;
  return Buffer::adopt(block, bytes, alignment);
}

}  // namespace detail

// Allocates from the innermost scope that catches it, else from the device's default pool. See commpool_allocate.
inline Result<Buffer> allocate(std::uint64_t bytes, Stream stream, Alignment alignment, int device = kCurrentDevice) {
  return detail::Allocate(bytes, alignment, [&](std::uint64_t padded, void** block) {
    return commpool_allocate(device, padded, stream, block);
  });
}
inline Result<Buffer> allocate(std::uint64_t bytes, Stream stream, int device = kCurrentDevice) {
  return allocate(bytes, stream, Alignment(), device);
}

// The same where a scope catches it, else an empty Buffer. See commpool_allocate_in_scope.
inline Result<Buffer> allocate_in_scope(std::uint64_t bytes, Stream stream, int device) {
  void* block = nullptr;
  const commpool_status status = commpool_allocate_in_scope(device, bytes, stream, &block);
  if (status == COMMPOOL_NOT_CAUGHT) return Buffer();
  if (status != COMMPOOL_OK) return detail::FromC(status);
  return Buffer::adopt(block, bytes);
}

// The stream outlives its use: release_stream comes before it is destroyed. See commpool_promise_stream.
inline Status promise_stream(Stream stream) { return detail::FromC(commpool_promise_stream(stream)); }

// Comes before the end of a promised stream. See commpool_release_stream.
inline Status release_stream(Stream stream) { return detail::FromC(commpool_release_stream(stream)); }

}  // namespace v1
}  // namespace commpool

#endif  // COMMPOOL_BUFFER_H_
