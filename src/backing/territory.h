// The addresses of an expandable pool: a reserved range in which pages, one physical handle each, come, move and go.
//
// As a Segment it is granted to peers, freed and abandoned as a whole: pages that come later are granted to the same
// peers. Threads: as Segment says. Work that uses a page must have ended before it moves or goes: unmapping needs a
// wait on the host, even behind work of the same stream.
#ifndef COMMPOOL_SRC_BACKING_TERRITORY_H_
#define COMMPOOL_SRC_BACKING_TERRITORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "src/backing/backing.h"
#include "src/base/host_reserve.h"

namespace commpool::internal {

class Territory : public Segment, public Sleeper {
 public:
  static Result<std::unique_ptr<Territory>> Reserve(Backing& backing, uint64_t bytes);

  Territory(PageSource& source, const Placement& placement, AddressRange range);
  ~Territory() override;

  CUdeviceptr address() const override { return range_address_; }
  uint64_t bytes() const override { return range_bytes_; }
  using Segment::Grant;
  Status Grant(std::span<const int> peers) override;
  Status Revoke(int peer) override;
  Status Release() override;
  void Abandon() override;

  Sleeper* sleeper() override { return this; }
  Status UnmapAll() override;
  void ReleaseUnmapped() override;
  // For the peers that it was granted to.
  Status MapAll(const ReservedSet<int>& peers) override;
  // Whole pages.
  Result<CUdeviceptr> WakeFrom(CUdeviceptr from, uint64_t at_least, PageSource& source,
                               const ReservedSet<int>& peers) override;
  uint64_t missing_bytes() const override;

  // The pages. REQUIRES: the context of the pool's device is current: a growth has many, and asking for it takes the
  // driver 90 ns each time.
  //
  // Maps a page to free addresses of the territory. Nobody has access yet. kDriverError where a page could not be
  // unmapped before.
  Status Map(PhysicalMemory memory, CUdeviceptr at);
  // Takes a page out of its addresses. REQUIRES: one is mapped at `at`. Where it fails the page is there as before.
  Result<PhysicalMemory> Unmap(CUdeviceptr at);
  // The same for pages that lie in a row, in one call: by address. REQUIRES: whole pages cover the range.
  Result<ReservedVector<PhysicalMemory>> UnmapRow(CUdeviceptr at, uint64_t bytes);
  // Unmaps and releases the pages in the range, after a failure. A page that cannot be unmapped stays, and no other
  // takes its place.
  Status Drop(CUdeviceptr at, uint64_t bytes);
  // Lets the pool's device and peers use pages that were mapped, all in one call. REQUIRES: pages cover the range.
  Status Open(CUdeviceptr at, uint64_t bytes);

 private:
  struct Page {
    uint64_t bytes = 0;
    PhysicalMemory memory;
    Mapping mapping;
  };
  using Pages = ReservedMap<CUdeviceptr, Page>;

  // In one call for each run of pages without a gap.
  Status ChangeAccess(std::span<const int> devices, CUmemAccess_flags flags);

  // Maps those of the pages that are mapped nowhere, and lets the pool's device and peers use them.
  Status MapPages(Pages::iterator first, Pages::iterator last);

  // The first page after those that lie next to each other from `first` to `last`, mapped or not as that is; and their
  // bytes.
  Pages::iterator EndOfRow(Pages::iterator first, Pages::iterator last, uint64_t* bytes);

  PageSource& source_;
  const Driver& driver_;
  const std::shared_ptr<DeviceContext> context_;
  const Placement placement_;
  AddressRange range_;
  const CUdeviceptr range_address_;
  const uint64_t range_bytes_;
  Pages pages_;
  ReservedSet<int> peers_;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_BACKING_TERRITORY_H_
