// Memory of the vmm backing: a reserved range of addresses in which pages, one physical handle each, come, move and go.
//
// An expandable pool has a few large territories and moves pages in them. A segment of any other pool is a territory
// with a single page that covers it. As a Segment it is granted to peers, freed and abandoned as a whole; pages that
// come later are granted to the same peers, in the same way. Threads: as Segment says. Before a page moves or goes, the
// host must have waited for all work that uses it, even for work of the same stream.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "src/library/backing/backing.h"
#include "src/library/backing/kept_addresses.h"

namespace commpool::internal {

class Territory : public Segment {
 public:
  // For the pages of an expandable pool, which the backing makes. REQUIRES: its memory comes in pages.
  static Result<std::unique_ptr<Territory>> Reserve(const Backing& backing, uint64_t bytes);

  // When the territory is released, its addresses go to `kept`; without `kept`, back to the driver.
  Territory(const Backing& backing, AddressRange range, std::span<const int> peers = {},
            std::shared_ptr<KeptAddresses> kept = nullptr);
  // Without a Release before, as after a growth that failed, the addresses go back to the driver.
  ~Territory() override;

  Territory* territory() override { return this; }
  void KeepAddresses() override { range_.Abandon(); }
  void Abandon() override;

  // For sleep: memory goes and comes back at its addresses. After a failure a second call does what is left. REQUIRES:
  // nobody uses the memory; the pool has waited for the device and deregistered the range.
  //
  // Unmaps the memory, which the territory still owns; rows that the driver refuses stay, and MapAll maps the others.
  Status UnmapAll();
  // Releases all memory that is mapped nowhere.
  void ReleaseUnmapped();
  // Maps again, for the device and its peers, what is mapped nowhere. Makes no call for the rest: a kernel may run on
  // it. REQUIRES: nothing is missing.
  Status MapAll();
  // Makes released memory again, and maps it: whole pages from `from` on, at least `at_least` bytes if so many are
  // missing. Returns the address where the rest begins; the range's end if nothing is left to make. After a failure a
  // part of the memory may exist; UnmapAll removes that. REQUIRES: the device's context is current.
  Result<CUdeviceptr> WakeFrom(CUdeviceptr from, uint64_t at_least, Backing& backing);
  uint64_t missing_bytes() const;

  // The pages. REQUIRES: the context of the pool's device is current. A growth has many pages, and to ask for the
  // context takes the driver 90 ns each time.
  //
  // Maps a page to free addresses of the territory. Nobody has access yet. Fails where a page that Drop left there can
  // still not be unmapped.
  Status Map(PhysicalMemory memory, CUdeviceptr at);
  // Unmaps adjacent pages in one call; returns them by address. Where it fails they are there as before.
  // REQUIRES: whole pages cover the range, all mapped.
  Result<std::vector<PhysicalMemory>> UnmapRow(CUdeviceptr at, uint64_t bytes);
  // Unmaps and releases the pages in the range, after a failure. A page that cannot be unmapped stays until Map needs
  // its place.
  Status Drop(CUdeviceptr at, uint64_t bytes);
  // Lets the pool's device and peers use pages that were mapped, and the CPU those on the host, all in one call.
  // REQUIRES: pages cover the range.
  Status Open(CUdeviceptr at, uint64_t bytes);

 private:
  struct Page {
    uint64_t bytes = 0;
    PhysicalMemory memory;
    Mapping mapping;
    bool open = false;  // the device and its peers may use it

    bool IsMapped() const { return mapping.valid(); }
    bool IsClosed() const { return !open; }
  };
  using Pages = std::map<CUdeviceptr, Page>;
  using Accesses = std::vector<CUmemAccessDesc>;

  // Calls `step(first, last, bytes)` for each run of such pages without a gap: one driver call takes any number of
  // whole mappings. Ends at the first failure.
  template <typename Step>
  static Status ForEachRow(Pages::iterator first, Pages::iterator last, bool (Page::*is_such)() const, Step step);

  // Goes on with the other rows after a failure, and returns the first.
  Status UnmapPages(Pages::iterator first, Pages::iterator last);
  // Maps those of the pages that are mapped nowhere, and lets the pool's device and peers use those that they may not.
  Status MapPages(Pages::iterator first, Pages::iterator last);
  Status ChangeAccess(std::span<const int> devices, CUmemAccess_flags flags);
  // REQUIRES: whole mappings cover the range; the device's context is current.
  Status SetAccess(CUdeviceptr at, uint64_t bytes, const Accesses& accesses);
  Status GrantPeers(std::span<const int> peers) override;
  Status RevokePeer(int peer) override;
  Status ReleaseMemory() override;

  std::shared_ptr<KeptAddresses> kept_;  // shared by all segments; null: it keeps none
  const Placement placement_;
  const CUmemAccess_flags flags_of_peers_;
  AddressRange range_;
  Pages pages_;
  std::set<int> peers_;
};

}  // namespace commpool::internal
