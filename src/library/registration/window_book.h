// The windows of all pools of a process: which one holds a pointer, and where NCCL has placed them, so that they can
// come back to their places.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/loader.h"
#include "src/library/registration/communicator.h"
#include "src/library/registration/window_order.h"

namespace commpool::internal {

// What devices read of a window, where the version of NCCL is one whose records are known. A value.
//
// A record's address is the window's handle, and kernels take peers' addresses from it: so a graph with symmetric
// kernels holds as long as both stay the same. NCCL 2.28.9 and 2.30.7, src/include/nccl_device/impl/core__types.h; in
// pages of 64, src/allocator.cc.
struct WindowRecord {
  // As NCCL writes them, except for its pointer to what the host knows, which comes first.
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

struct WindowPlace {
  ncclWindow_t window = nullptr;
  uint64_t offset = 0;
};

struct RegisteredWindow {
  ncclComm_t communicator = nullptr;
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  ncclWindow_t window = nullptr;
  std::optional<WindowRecord> record = {};
};

// A communicator without windows of ours is forgotten: its address may become another one's. Any thread; calls no
// driver.
class WindowBook {
 public:
  // As it was registered just now. REQUIRES: it is not empty and overlaps no other window of its communicator.
  void Add(const RegisteredWindow& window);
  // Does nothing where no window begins there.
  void Remove(ncclComm_t communicator, CUdeviceptr address);

  // Nothing where no window of the communicator holds the address.
  std::optional<WindowPlace> Find(ncclComm_t communicator, CUdeviceptr address) const;
  // Of the window that begins there. Nothing where it is not known.
  std::optional<WindowRecord> RecordOf(ncclComm_t communicator, CUdeviceptr address) const;
  // Steps that bring these windows back once all of them have ended, by their places in the list. kFailedPrecondition
  // says why there are none: a window's record is not known, NCCL's proxies for the network hold it, or no order is
  // found.
  Result<std::vector<WindowStep>> FindReturn(ncclComm_t communicator, const std::vector<CUdeviceptr>& addresses) const;

 private:
  struct Window : RegisteredWindow {
    WindowSpot spot = {};  // where the record is known
  };
  struct Windows {
    WindowLayout layout = {};
    std::vector<uint64_t> pages = {};  // of records, as we came to see them
    std::map<CUdeviceptr, Window> by_address = {};

    WindowSpot SpotOf(const WindowRecord& record);
  };

  // Null where it is not known.
  const Window* WindowOf(ncclComm_t communicator, CUdeviceptr address) const COMMPOOL_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kLeaf};
  std::map<ncclComm_t, Windows> communicators_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal
