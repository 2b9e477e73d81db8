// One all-gather of a few bytes over a communicator, for ranks that have no other way to talk yet.
//
// The deadline holds even if NCCL's call does not return, because a separate thread makes it. Where a rank does not
// come, that thread stays in the call until the program aborts the communicator.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <future>
#include <list>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"
#include "src/library/registration/communicator.h"

namespace commpool::internal {

// Device memory of the context that was current.
class GatherMemory : public Handle<GatherMemory, Sized<CUdeviceptr>> {
 public:
  static constexpr CallSite kRelease{.call = "cuMemFree", .purpose = "address exchange"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const Sized<CUdeviceptr>& memory) {
    return cuda.cuMemFree(memory.object);
  }

  static Result<GatherMemory> Make(const Driver& driver, uint64_t bytes);

  using Handle::Handle;
};

// A gather whose answer has not come.
struct SmallGather {
  CUcontext context = nullptr;  // of its memory and stream
  GatherMemory memory;
  CopyStream stream;
  std::future<ncclResult_t> call = {};  // NCCL's call, on a thread of its own, until its result is read
  ncclComm_t busy = nullptr;            // the nonblocking communicator that still works on it
};

// The gathers of a process that ended without an answer. NCCL may still use their device memory and streams. A later
// call gives these back, once NCCL's call has returned and its work has passed; an abort of the communicator lets both
// happen.
//
// With a nonblocking communicator, NCCL's threads may launch the work later, and nobody can ask an aborted
// communicator. So the memory stays until the program says that the communicator has ended, or until another call finds
// it idle.
//
// The runtime owns them. Any thread.
class UnansweredGathers {
 public:
  ~UnansweredGathers();  // calls nothing

  void Keep(SmallGather gather);
  // Call it when NCCL has nothing more to launch on the communicator: it is idle, or has ended.
  void NoteIdle(ncclComm_t communicator);
  // Gives back what no gather uses any more. It may wait for their devices.
  void Release();

 private:
  Mutex mutex_{LockRank::kLeaf};
  std::list<SmallGather> gathers_ COMMPOOL_GUARDED_BY(mutex_);
};

// Returns the bytes of all ranks, the communicator's rank 0's first. Collective over the communicator; its device must
// be current. `mine` is whole 32-bit words, as many on every rank. `site` is for error messages: the pool's call, and
// why a rank might not come. Where one is missing, the device may still run NCCL's kernel: the kernel's memory and
// stream go to `unanswered` then.
Result<std::vector<std::string>> GatherOver(const Driver& driver, const Communicator& communicator,
                                            const std::string& mine, const CallSite& site, uint64_t deadline_ms,
                                            UnansweredGathers& unanswered);

}  // namespace commpool::internal
