// What a device reads of a window, at the address that is the window's handle. One thread at a time.
//
// NCCL 2.28.9 and 2.30.7, src/include/nccl_device/impl/core__types.h and src/allocator.cc: pages of 64 records in
// device memory. Here they are the host's, which copies by address read as well.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace commpool::internal::emulated_nccl {

// How a record begins. What follows is for networks.
struct WindowRecord {
  const void* host = nullptr;  // NCCL's own side of it
  uint64_t first_rank = 0;     // the address at the first rank
  int32_t own_place = 0;       // among the ranks that reach each other
  int32_t rank = 0;
  uint32_t stride_4g = 0;  // from one rank's address to the next, in units of 4 GiB
  uint32_t place_4k = 0;   // in the communicator's range of addresses, in units of 4 KiB
  uint32_t network_4k = 0;
};

class WindowRecords {
 public:
  // `record_bytes`: a multiple of 8.
  explicit WindowRecords(size_t record_bytes) : record_bytes_(record_bytes) {}

  // Returns the record's address.
  ncclWindow_t Write(uint32_t number, const WindowRecord& record);

 private:
  struct Free {
    void operator()(std::byte* page) const { std::free(page); }
  };

  size_t record_bytes_;
  std::vector<std::unique_ptr<std::byte, Free>> pages_ = {};
};

}  // namespace commpool::internal::emulated_nccl
