// Device memory and streams of small all-gathers that ended without an answer. NCCL may still use them. A later call
// gives them back, once NCCL's call has returned and its work has passed; an abort of the communicator lets both
// happen.
//
// With a nonblocking communicator, NCCL's threads may launch the work later, and nobody can ask an aborted
// communicator. So the memory stays until the program says that the communicator has ended, or until another call finds
// it idle.
#ifndef COMMPOOL_SRC_REGISTRATION_UNANSWERED_GATHERS_H_
#define COMMPOOL_SRC_REGISTRATION_UNANSWERED_GATHERS_H_

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <future>
#include <list>

#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/driver/handles.h"
#include "src/driver/loader.h"

namespace commpool::internal {

struct GatherResources {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  uint64_t bytes = 0;
};

// Device memory and a stream for one gather, of the context that was current.
class GatherScratch : public Handle<GatherScratch, GatherResources> {
 public:
  static constexpr CallSite kRelease{.call = "cuStreamDestroy or cuMemFree", .purpose = "address exchange"};
  static CUresult ReleaseValue(const CudaDriver& cuda, const GatherResources& scratch);

  static Result<GatherScratch> Make(const Driver& driver, uint64_t bytes);

  using Handle::driver;
  using Handle::Handle;
  CUcontext context() const { return value().context; }
  CUdeviceptr address() const { return value().memory; }
  CUstream stream() const { return value().stream; }
  uint64_t bytes() const { return value().bytes; }
  // Whether the stream's work has passed. Where the context is lost nobody can know: the handle then becomes empty.
  bool IsIdle();
};

// A gather whose answer has not come.
struct SmallGather {
  GatherScratch scratch;
  std::future<ncclResult_t> call = {};  // NCCL's call, on a thread of its own, until its result is read
  ncclComm_t busy = nullptr;            // the nonblocking communicator that still works on it
};

// All such gathers of a process; the runtime owns them. Any thread.
class UnansweredGathers {
 public:
  ~UnansweredGathers();  // calls nothing

  void Keep(SmallGather gather);
  // Call it when NCCL has nothing more to launch on the communicator: it is idle, or has ended.
  void NoteIdle(ncclComm_t communicator);
  // Gives back what no gather uses any more. It may wait for their devices.
  void Release();

 private:
  using Gathers = std::list<SmallGather, ReservedAllocator<SmallGather>>;
  static bool IsOver(SmallGather& gather);

  Mutex mutex_{LockRank::kLeaf};
  Gathers gathers_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_REGISTRATION_UNANSWERED_GATHERS_H_
