// PlacedWindows: where NCCL has placed the windows of all pools of a process, so that they can come back there.
//
// A communicator without windows of ours is forgotten: its address may become another one's. Any thread.
#ifndef COMMPOOL_SRC_REGISTRATION_PLACED_WINDOWS_H_
#define COMMPOOL_SRC_REGISTRATION_PLACED_WINDOWS_H_

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/registration/window_layout.h"
#include "src/registration/window_order.h"
#include "src/registration/window_record.h"

namespace commpool::internal {

class PlacedWindows {
 public:
  // The window of the memory at `address`, as it was registered just now. Throws where the host has no memory; nothing
  // has changed then.
  void Add(ncclComm_t communicator, CUdeviceptr address, uint64_t bytes, const WindowRecord& record);
  // Does nothing where it is not known.
  void Remove(ncclComm_t communicator, CUdeviceptr address);

  // Nothing where it is not known.
  std::optional<WindowRecord> Find(ncclComm_t communicator, CUdeviceptr address) const;
  // Steps that bring these windows back once all of them have ended, by their places in the list. kFailedPrecondition
  // says why there are none: a window is not known, NCCL's proxies for the network hold it, or no order is found.
  Result<std::vector<WindowStep>> FindReturn(ncclComm_t communicator, const std::vector<CUdeviceptr>& addresses) const;

 private:
  struct Window {
    uint64_t bytes = 0;
    WindowSpot spot;
    WindowRecord record;
  };
  struct Placed {
    WindowLayout layout;
    std::vector<uint64_t> pages = {};  // of records, as we came to see them
    std::map<CUdeviceptr, Window> windows = {};

    WindowSpot SpotOf(const WindowRecord& record);
    const Window* Find(CUdeviceptr address) const;  // null where it is not known
  };

  mutable Mutex mutex_{LockRank::kLeaf};
  std::map<ncclComm_t, Placed> communicators_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_PLACED_WINDOWS_H_
