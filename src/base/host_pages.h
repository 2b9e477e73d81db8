// Pages that the system maps for the process: memory, or a file. The destructor unmaps them, so the system has them
// back at once (free() may keep memory).
#ifndef COMMPOOL_SRC_BASE_HOST_PAGES_H_
#define COMMPOOL_SRC_BASE_HOST_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace commpool::internal {

class HostPages {
 public:
  HostPages() = default;
  // Pages of new memory; not valid where the system has none.
  static HostPages Make(uint64_t bytes) {
    return HostPages(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  }
  // The pages of a file, to read them; not valid where the file cannot be mapped.
  static HostPages Of(int file, uint64_t bytes) { return HostPages(bytes, PROT_READ, MAP_SHARED, file); }

  HostPages(HostPages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostPages& operator=(HostPages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostPages() {
    if (valid()) munmap(memory_, bytes_);
  }

  bool valid() const { return memory_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  HostPages(uint64_t bytes, int protection, int flags, int file)
      : memory_(mmap(nullptr, bytes, protection, flags, file, 0)), bytes_(bytes) {
    if (memory_ == MAP_FAILED) memory_ = nullptr;
  }

  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BASE_HOST_PAGES_H_
