// What devices read of a window, where the version of NCCL is one whose records are known. A value.
//
// A record's address is the window's handle, and kernels take peers' addresses from it: so a graph with symmetric
// kernels holds as long as both stay the same. NCCL 2.28.9 and 2.30.7, src/include/nccl_device/impl/core__types.h; in
// pages of 64, src/allocator.cc.
#ifndef COMMPOOL_SRC_REGISTRATION_WINDOW_RECORD_H_
#define COMMPOOL_SRC_REGISTRATION_WINDOW_RECORD_H_

#include <nccl.h>

#include <cstdint>
#include <optional>

#include "commpool/status.h"
#include "src/driver/loader.h"
#include "src/registration/communicator.h"

namespace commpool::internal {

struct WindowRecord {
  // As NCCL writes them, but for its pointer to what the host knows, which comes first.
  struct Fields {
    uint64_t first_rank = 0;  // the address at the first of the ranks that reach each other
    int32_t own_place = 0;    // among those
    int32_t rank = 0;
    uint32_t stride_4g = 0;  // from one rank's address to the next, in units of 4 GiB
    uint32_t place_4k = 0;   // in the communicator's addresses, in units of 4 KiB
    bool operator==(const Fields&) const = default;
  };

  ncclWindow_t window = nullptr;
  Fields fields;
  // Of its record.
  uint64_t page = 0;  // an address
  uint32_t slot = 0;  // in the page

  uint64_t offset() const { return uint64_t{fields.place_4k} << 12; }
  // Whether all ranks of the communicator reach each other: else some rank's place among those is not its number.
  bool all_reach() const { return fields.own_place == fields.rank; }
  bool operator==(const WindowRecord&) const = default;
};

// Nothing where NCCL's records are not known, and for a handle that is not a window's (2.28.9 gives that of a local
// registration where GPUs do not reach each other). Waits for no other stream. A context must be current.
Result<std::optional<WindowRecord>> ReadWindowRecord(const Driver& driver, const Communicator& communicator,
                                                     ncclWindow_t window);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_WINDOW_RECORD_H_
