#include "src/library/backing/bound_backing.h"

#include <utility>

#include "src/library/backing/node_pages.h"
#include "src/library/base/try.h"
#include "src/library/driver/device_info.h"
#include "src/library/driver/diagnosis.h"

namespace commpool::internal {

namespace {

constexpr unsigned kForAllDevices = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

// The nodes of the emulator are not those of the host that it runs on: there the pages lie anywhere, and the nodes next
// to a device are known.
Status Bind(const Driver& driver, NodePages& pages, int node) {
  if (driver.kind == DriverChoice::kCuda) return pages.BindTo(node);
  const int devices = COMMPOOL_TRY(DeviceCount(driver));
  for (int device = 0; device < devices; ++device) {
    const DeviceInfo info = COMMPOOL_TRY(DescribeDevice(driver, device));
    if (NearestNode(info) == node) return Status();
  }
  return InvalidArgument("there is no host NUMA node ", node);
}

class BoundSegment : public Segment {
 public:
  BoundSegment(const Backing& backing, NodePages pages)
      : Segment(backing, reinterpret_cast<CUdeviceptr>(pages.address()), pages.bytes()), pages_(std::move(pages)) {}
  ~BoundSegment() override { ReleaseAndLog(); }

  void Abandon() override {
    pages_.Abandon();
    Segment::Abandon();
  }

 private:
  // Pages that are still registered stay: the driver may use them.
  Status ReleaseMemory() override {
    Status status = CheckCuda(driver(), driver().cuda.cuMemHostUnregister(pages_.address()),
                              {.call = "cuMemHostUnregister", .bytes = bytes()});
    if (!status.ok()) pages_.Abandon();
    const NodePages gone = std::move(pages_);
    return status;
  }

  NodePages pages_;  // none once they are released
};

class BoundBacking : public Backing {
 public:
  BoundBacking(const BackingRow& row, const BackingBasis& basis, uint64_t granularity, std::string why)
      : Backing(row, basis, granularity), why_(std::move(why)), node_(basis.placement.numa_node) {}

  MemoryFacts Facts() const override {
    return {NameOf(placement()) + ", bound and registered, no handle" + node_.Text(), why_};
  }

 private:
  MemoryKind memory() const override { return MemoryKind::kPinned; }

  Result<std::unique_ptr<Segment>> MakeSegment(uint64_t bytes, const SegmentRequest&) override {
    NodePages pages = COMMPOOL_TRY(NodePages::Make(bytes, granularity()));
    COMMPOOL_TRY(Bind(driver(), pages, placement().numa_node));
    const CallSite site = {.call = "cuMemHostRegister", .numa_node = placement().numa_node, .bytes = bytes};
    COMMPOOL_TRY(CheckCuda(driver(), driver().cuda.cuMemHostRegister(pages.address(), bytes, kForAllDevices), site));
    auto segment = std::make_unique<BoundSegment>(*this, std::move(pages));
    COMMPOOL_TRY(CheckAddress(segment->address()));
    const auto* const registered = reinterpret_cast<const void*>(segment->address());
    COMMPOOL_TRY(node_.Add(AskKernel(driver(), registered, bytes, placement().numa_node)));
    return std::unique_ptr<Segment>(std::move(segment));
  }

  // Programs and the page map know one address of a block, so CPU and devices have to use the same.
  Status CheckAddress(CUdeviceptr address) const {
    CUdeviceptr of_device = 0;
    COMMPOOL_TRY(CheckCuda(driver(),
                           driver().cuda.cuMemHostGetDevicePointer(&of_device, reinterpret_cast<void*>(address), 0),
                           {.call = "cuMemHostGetDevicePointer", .device = placement().device}));
    if (of_device == address) return Status();
    return NotSupported("device ", placement().device, " uses registered memory at other addresses than the CPU");
  }

  const std::string why_;
  NodeProof node_;
};

}  // namespace

Result<std::unique_ptr<Backing>> MakeBoundBacking(const BackingRow& row, const BackingBasis& basis,
                                                  uint64_t granularity, const std::string& why) {
  auto backing = std::make_unique<BoundBacking>(row, basis, granularity, why);
  // Whether node and registration work shows with the smallest piece.
  const Status probed = backing->Make({.bytes = 1}).status();
  if (probed.ok() || probed.code() == StatusCode::kOutOfMemory) return std::unique_ptr<Backing>(std::move(backing));
  return why.empty() ? probed : Failure(probed.code(), probed.message(), "; before that: ", why);
}

}  // namespace commpool::internal
