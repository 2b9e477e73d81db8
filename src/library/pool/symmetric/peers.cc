// map_peers of symmetric pools: where this rank's blocks lie on the other ranks, and what sleep does with that.
#include <optional>
#include <utility>

#include "src/library/base/field_list.h"
#include "src/library/base/try.h"
#include "src/library/pool/symmetric/symmetric_mode.h"
#include "src/library/registration/wire.h"
#include "src/library/sharing/rank_offers.h"

namespace commpool::internal {

namespace {

// Where a rank offers its segments, or why it cannot.
struct Offered {
  static constexpr const char* kName = "offer of segments";

  Status status = {};
  OfferPlace place = {};
  using Fields = FieldList<&Offered::status, &Offered::place>;
};
// What every rank hears: all offers in the order of ranks, or the first reason why one is missing.
struct AllOffered {
  static constexpr const char* kName = "offers of all ranks";

  Status status = {};
  std::vector<Offered> ranks = {};
  using Fields = FieldList<&AllOffered::status, &AllOffered::ranks>;
};

// Runs where the channel decides. One rank without an offer ends the call on all ranks.
std::string Collect(const std::vector<std::string>& contents) {
  AllOffered all;
  Result<std::vector<Offered>> offered = DecodeAll<Offered>(contents);
  all.status = offered.status();
  if (offered.ok()) all.ranks = std::move(*offered);
  for (size_t rank = 0; rank < all.ranks.size() && all.status.ok(); ++rank) {
    all.status = all.ranks[rank].status.under("rank " + std::to_string(rank) + " offers no memory");
  }
  return Encode(all);
}

// The share server gives the descriptors away on its own thread, so no rank waits for another one's call.
Result<RankOffer> OfferAll(const PoolBasis& basis, const std::vector<SegmentToRegister>& segments) {
  std::vector<PrivateDescriptor> descriptors;
  for (const SegmentToRegister& segment : segments) {
    // A second handle of the same memory, for this export: the segment keeps its own.
    const PhysicalMemory memory = PhysicalMemory::At(basis.driver, segment.address, segment.bytes);
    if (!memory.valid()) return NotSupported("a segment has no handle");
    FileDescriptor descriptor = COMMPOOL_TRY(memory.Export());
    descriptors.push_back(PrivateDescriptor::Make([&] { return std::move(descriptor); }));
    if (!descriptors.back().valid()) return SystemFailure("offering a segment");
  }
  return basis.runtime.shares.Offer(std::move(descriptors));
}

// The segment's memory on every rank. `number`: the segment's, in every offer. By rank. This rank takes its own memory
// by the same way: its place in the row of ranks is a second mapping.
Result<std::vector<PhysicalMemory>> TakeFromAll(const PoolBasis& basis, const std::vector<Offered>& offers,
                                                const SegmentToRegister& segment, size_t number, Deadline deadline) {
  std::vector<PhysicalMemory> memory;
  for (const Offered& offered : offers) {
    Result<PhysicalMemory> taken = [&]() -> Result<PhysicalMemory> {
      const FileDescriptor descriptor = COMMPOOL_TRY(TakeOffered(offered.place, number, deadline));
      return PhysicalMemory::Import(basis.driver, descriptor, segment.bytes);
    }();
    if (!taken.ok()) {
      // A broken channel has these codes, and this channel is whole.
      const bool of_a_process =
          taken.status().code() == StatusCode::kRemoteFailure || taken.status().code() == StatusCode::kDeadlineExceeded;
      return Failure(of_a_process ? StatusCode::kNotSupported : taken.status().code(), "the memory of rank ",
                     memory.size(), " is not to be had at ", offered.place.socket,
                     " (ranks of one host and one container have each other's): ", taken.status().message());
    }
    memory.push_back(std::move(*taken));
  }
  return memory;
}

}  // namespace

// May be repeated: after a growth it maps the new segments alone.
Status SymmetricMode::MapPeers() {
  const nvtx::Range range = basis_.Shown("map_peers");
  MutexLock collective(basis_.collective);
  Status readiness = basis_.CheckOpen();
  if (readiness.ok()) readiness = segments_.backing->CanShare().under("map_peers");
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kMapPeers, .readiness = readiness}));
  // The result of all ranks, so `maps_peers_` is alike on all of them, and they sleep by the same steps.
  const Status mapped = MapLacking();
  if (mapped.ok()) maps_peers_ = true;
  return mapped;
}

// Every rank offers its segments, and takes those of all ranks from their processes. map_peers calls it, wake does, and
// a sleep that stays awake. The collective lock makes this the only thread that changes `peers_`.
Status SymmetricMode::MapLacking() {
  const ContextGuard current = basis_.MakeCurrent();
  const std::vector<SegmentToRegister> segments = segments_.book.List();
  // No return before the agreement: the other ranks wait for this one there. The offer stays until all have taken it.
  const Result<RankOffer> offer = OfferAll(basis_, segments);
  const Offered mine{offer.status(), offer.ok() ? offer->place : OfferPlace()};
  const Result<std::string> decision = collective_.channel().Decide(Encode(mine), "offering segments", Collect);
  if (!decision.ok()) return collective_.Explain(decision.status());
  const Result<AllOffered> all = Decode<AllOffered>(*decision, 0);
  if (const Status& heard = all.ok() ? all->status : all.status(); !heard.ok()) {
    return basis_.Named(heard.under("map_peers"));
  }
  const Deadline deadline = DeadlineAfter(std::chrono::milliseconds(basis_.own_deadline_ms()));
  // What this call has mapped: the undo leaves what was there before.
  std::vector<uint64_t> mapped;
  const auto map = [&]() -> Status {
    for (size_t number = 0; number < segments.size(); ++number) {
      const SegmentToRegister& segment = segments[number];
      if (peers_.IsMapped(segment.index)) continue;
      const std::vector<PhysicalMemory> memory =
          COMMPOOL_TRY(TakeFromAll(basis_, all->ranks, segment, number, deadline));
      mapped.push_back(segment.index);
      COMMPOOL_TRY(peers_.Map({segment.address, segment.bytes, segment.index}, memory));
    }
    TellOfPeers(false);
    return Status();
  };
  const auto unmap = [&](const Status&) {
    // The addresses stay for the next try: graphs may hold them since before a sleep.
    for (const uint64_t index : mapped) static_cast<void>(peers_.Unmap(index));
  };
  return collective_.Run({"mapping the memory of all ranks", map, unmap});
}

// The first step of a sleep: memory that another rank has mapped would not go back to its device.
Status SymmetricMode::UnmapPeers() {
  const ContextGuard current = basis_.MakeCurrent();
  const auto unmap = [&]() -> Status {
    COMMPOOL_TRY(blocks_.WaitForDevice(basis_.own_deadline_ms()));
    TellOfPeers(true);
    return peers_.UnmapAll();
  };
  const auto map_again = [&](const Status&) {
    basis_.collective.AssertHeld();
    static_cast<void>(MapLacking());
  };
  return collective_.Run({"unmapping the memory of other ranks", unmap, map_again});
}

// For the emulator such a range is memory that sleeps or does not, as a segment is.
void SymmetricMode::TellOfPeers(bool asleep) const {
  for (const engine::SegmentRange& range : peers_.Reserved()) basis_.runtime.observer.SegmentSleeps(range, asleep);
}

// Goes on after a failure, so that as few mappings as possible are left.
Status SymmetricMode::ForgetPeers(const std::vector<engine::SegmentIndex>& segments) {
  const ContextGuard current = basis_.MakeCurrent();
  return FirstFailureOf(segments, [&](engine::SegmentIndex index) { return peers_.Forget(index); });
}

// Any thread, without the collective lock: a program may ask for each launch.
Result<PeerPlaces> SymmetricMode::PeersOf(CUdeviceptr address) const {
  if (const std::optional<PeerPlaces> places = peers_.Find(address)) return *places;
  return basis_.Named(FailedPrecondition(basis_.life.asleep()
                                             ? "peers_of: it is asleep"
                                             : "peers_of: the block's segment is not mapped from the other ranks: "
                                               "call map_peers() on every rank after reserve()"));
}

}  // namespace commpool::internal
