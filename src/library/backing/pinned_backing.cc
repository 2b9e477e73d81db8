// The pinned backing: memory of the host that copies reach at the link's full speed, and beside other work. CPU and
// every device use it at the same addresses.
//
// The driver makes it (cuMemHostAlloc), or, on a named NUMA node, the process does (bound_backing.h). It comes in pages
// of the host, so a pool takes what was asked for and not the next power of two.
#include <utility>

#include "src/library/backing/bound_backing.h"
#include "src/library/backing/node_pages.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

constexpr unsigned kForAllDevices = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;

class PinnedBacking : public Backing {
 public:
  explicit PinnedBacking(const BackingBasis& basis) : Backing(kPinnedBacking, basis, NodePages::kPageBytes) {}

 private:
  MemoryKind memory() const override { return MemoryKind::kPinned; }
  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest&) override {
    void* memory = nullptr;
    COMMPOOL_TRY(CheckCuda(driver(), driver().cuda.cuMemHostAlloc(&memory, bytes, kForAllDevices),
                           {.call = "cuMemHostAlloc",
                            .bytes = bytes,
                            .memory = Memory::kHost,
                            .likely_cause = "the host has not so much to pin"}));
    auto free = [&driver = driver(), memory, bytes] {
      return CheckCuda(driver, driver.cuda.cuMemFreeHost(memory), {.call = "cuMemFreeHost", .bytes = bytes});
    };
    return std::unique_ptr<Segment>(std::make_unique<PlainSegment>(*this, memory, bytes, std::move(free)));
  }
};

Result<std::unique_ptr<Backing>> MakePinnedBacking(BackingBasis basis, const BackingRequest&) {
  if (basis.placement.numa_node < 0) return std::unique_ptr<Backing>(std::make_unique<PinnedBacking>(basis));
  return MakeBoundBacking(kPinnedBacking, basis, NodePages::kPageBytes, "");
}

}  // namespace

constinit const BackingRow kPinnedBacking = {
    .kind = BackingKind::kPinned,
    .name = "pinned",
    .places = Places::kHost,
    .make = MakePinnedBacking,
    .why_no_revoke = kPinnedForAll,
    .opening = Opening::kAllDevices,
};

}  // namespace commpool::internal
