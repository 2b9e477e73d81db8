// SegmentStore: makes, grants, registers and releases the pool's memory, and says whether it may be unmapped.
#include "src/library/pool/segments/segment_store.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/library/base/bytes.h"
#include "src/library/base/check.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/driver/diagnosis.h"
#include "src/library/pool/shared/memory_observer.h"

namespace commpool::internal {

// A pool's peers are known from its options before it has a segment, so that the first one is made for them.
SegmentStore::SegmentStore(const PoolBasis& basis, const GraphCaptures& captures, BlockStore& blocks,
                           std::unique_ptr<Backing> backing, std::shared_ptr<MemoryAccount> account)
    : basis_(basis),
      captures_(captures),
      blocks_(blocks),
      backing_(std::move(backing)),
      account_(std::move(account)),
      granularity_(std::max(basis.configuration.granularity_bytes, backing_->granularity())),
      tells_heaps_(basis.runtime.observer.TakesHeapsOf(*backing_)),
      peers_(basis.configuration.peers.begin(), basis.configuration.peers.end()),
      made_for_others_(backing_->placement().kind != Placement::Kind::kDevice || backing_->OpenTo().size() > 1),
      registrations_(basis.driver,
                     basis.configuration.symmetric() ? RegistrationKind::kWindow : RegistrationKind::kLocal,
                     basis.deadline_ms(), basis.runtime.windows, &basis.runtime.placed_windows, &basis.record),
      kept_(basis) {
  MutexLock lock(mutex_);
  NoteOthersMayUse();
}

// What is left was not released in order, such as memory of a symmetric pool that was not closed. It stays until the
// process ends.
SegmentStore::~SegmentStore() {
  for (Segment* segment : Pointers()) {
    basis_.runtime.observer.SegmentGone(segment->address());
    segment->Abandon();
  }
  for (NewSegment& segment : TakeSetAside(Pinned::kGo)) segment.Abandon();
}

// Two limits: the pool's own, and the one that all pools of the place share. The own limit is only looked at: one
// thread at a time grows a pool. The shared one is taken, because other pools grow at the same time.
Result<Room> SegmentStore::TakeRoom(uint64_t bytes) const {
  if (!FitsOwnLimit(bytes)) {
    return Status(StatusCode::kOutOfMemory,
                  basis_.title + ": " + FormatBytes(bytes) + " more would exceed its limit of " +
                      FormatBytes(basis_.configuration.limit_bytes) + " (" +
                      FormatBytes(blocks_.counters().reserved_bytes.current) + " are reserved)");
  }
  COMMPOOL_TRY(CheckHeadroom(bytes));
  if (account_->Take(bytes)) return Room(*account_, bytes);
  return Status(StatusCode::kOutOfMemory, basis_.title + ": " + FormatBytes(bytes) +
                                              " more would exceed the limit of " + account_->place() + ", " +
                                              FormatBytes(account_->limit()));
}

uint64_t SegmentStore::FreeOnDevice() const {
  if (backing_->placement().kind != Placement::Kind::kDevice) return UINT64_MAX;
  size_t free = 0;
  size_t total = 0;
  const ContextGuard current = basis_.MakeCurrent();
  return basis_.driver.cuda.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : UINT64_MAX;
}

uint64_t SegmentStore::LackingHeadroom() const {
  const uint64_t headroom = account_->headroom();
  return headroom == 0 ? 0 : headroom - std::min(headroom, FreeOnDevice());
}

// Others may take the memory between the look and the growth: headroom is no reservation.
Status SegmentStore::CheckHeadroom(uint64_t bytes) const {
  const uint64_t headroom = account_->headroom();
  if (headroom == 0) return Status();
  const uint64_t free = FreeOnDevice();
  const bool unknown = free == UINT64_MAX;
  if (unknown || (free >= headroom && free - headroom >= bytes)) return Status();
  return Status(StatusCode::kOutOfMemory, basis_.title + ": " + FormatBytes(bytes) +
                                              " more would not leave the headroom of " + account_->place() + ", " +
                                              FormatBytes(headroom) + ", to others (" + FormatBytes(free) +
                                              " are free)");
}

// Asked before others give memory back for a request that can never be served.
Status SegmentStore::CheckPossible(uint64_t bytes) const {
  if (!CheckedRoundUp(bytes, granularity_)) return Status();  // overflows: the engine reports that
  // What the place has in all, whatever is free of it now.
  if (bytes <= account_->capacity()) return Status();
  // A program's functions may take the memory from elsewhere.
  if (FindBacking(basis_.configuration.backing.kind)->maker == Maker::kProgram) return Status();
  return Status(StatusCode::kOutOfMemory, "no memory for " + FormatBytes(bytes) + " in " + basis_.title + ": " +
                                              account_->place() + " has " + FormatBytes(account_->capacity()) +
                                              " in all, and nothing was given back");
}

// An overflow is no fit.
bool SegmentStore::FitsOwnLimit(uint64_t bytes) const {
  const std::optional<uint64_t> after = CheckedAdd(blocks_.counters().reserved_bytes.current, bytes);
  return after && *after <= basis_.configuration.limit_bytes;
}

uint64_t SegmentStore::RoomLeft() const {
  const uint64_t limit = basis_.configuration.limit_bytes;
  return std::min(limit - std::min(limit, blocks_.counters().reserved_bytes.current), account_->Room());
}

// How many bytes the pools of the place may reserve before unused memory is released. UINT64_MAX: any number.
uint64_t SegmentStore::CollectionBytes() const {
  const double share = basis_.configuration.collection_share;
  const uint64_t limit = std::min(account_->limit(), account_->capacity());
  return share == 1.0 || limit == UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(share * static_cast<double>(limit));
}

// Only a program's own functions make memory in the order of a stream. The driver's memory is ready at once.
Result<std::unique_ptr<Segment>> SegmentStore::MakeFor(std::optional<StreamKey> stream, uint64_t bytes) {
  const WithoutFastPaths uncached;  // a function of the program may run
  // The backing may put work on the stream; a capture would record that work into its graph.
  const bool ordered = stream && backing_->makes_in_stream_order() && IsReachable(*stream) &&
                       PlaceOf(*stream) == basis_.device->device() && !basis_.device->capturing();
  const std::vector<int> peers = Peers();
  if (!ordered) return backing_->Make({.bytes = bytes, .peers = peers});
  std::unique_ptr<Segment> segment =
      COMMPOOL_TRY(backing_->Make({.bytes = bytes, .stream = StreamOfKey(*stream), .peers = peers}));
  // Parts of the segment may serve other streams next. So wait here for the work that the backing put on the stream:
  // then free memory never has to wait for its maker. Growth is rare enough for that.
  FenceTable& fences = basis_.fences();
  FenceId fence = COMMPOOL_TRY(fences.Record(*stream));
  const Status status = fences.Await(fence, basis_.deadline_ms());
  fences.Retire(fence);
  if (!status.ok()) return status;
  return segment;
}

// The program's own functions may return any address. So it is checked here, and entered in the process's table, before
// the engine knows it. Each failure on the way releases what was made: room, segment and entry go back with their
// objects.
Result<NewSegment> SegmentStore::Make(uint64_t bytes, Room room, std::optional<StreamKey> stream) {
  std::unique_ptr<Segment> segment = COMMPOOL_TRY(MakeFor(stream, bytes));
  if (segment->address() % basis_.configuration.alignment_bytes != 0) {
    return Status(StatusCode::kInvalidArgument, std::string("the ") + backing_->name() +
                                                    " backing returned an address that is no multiple of the pool's "
                                                    "alignment of " +
                                                    std::to_string(basis_.configuration.alignment_bytes) + " bytes");
  }
  Result<AddressTable::Entry> entry =
      basis_.runtime.addresses.Add(segment->address(), segment->bytes(), basis_.owner.lock());
  // The segment goes back to the backing with its object.
  if (!entry.ok()) {
    return entry.status().under(std::string("the ") + backing_->name() + " backing returned memory that is in use");
  }
  return NewSegment(std::move(room), std::move(segment), std::move(*entry));
}

// Observers hear of it first: they must know the segment before they hear of a block in it.
engine::SegmentIndex SegmentStore::Adopt(NewSegment segment, engine::Space space, engine::Part part) {
  const engine::SegmentRange range{segment->address(), segment->bytes()};
  LogSegment(range, basis_.name(), "makes");
  basis_.record.SegmentMade(range.address, range.bytes);
  if (tells_heaps_) basis_.runtime.observer.SegmentMade(range, basis_.tool.domain());
  MutexLock lock(blocks_.mutex());
  // The engine and the books learn of it under one hold of the lock: nobody gets a block of a segment that is not
  // there.
  const engine::SegmentIndex index = blocks_.engine().AddSegment(range, space, part);
  Put(index, segment.Adopt());
  return index;
}

// The same for all segments, because one backing makes them.
commpool_segment_traits SegmentStore::Traits() const {
  const Placement& placement = backing_->placement();
  const HandleTraits handles = backing_->handle_traits();
  return {.struct_bytes = sizeof(commpool_segment_traits),
          .device = placement.device,
          .backing = static_cast<commpool_backing>(backing_->row().kind),
          .location = static_cast<commpool_location>(placement.kind),
          .numa_node = placement.numa_node,
          .granularity_bytes = granularity_,
          .one_handle = handles.one_handle ? 1 : 0,
          .descriptor = handles.descriptor ? 1 : 0,
          .fabric = handles.fabric ? 1 : 0,
          .rdma = handles.rdma ? 1 : 0};
}

// Goes on after a failure: each registration that ends is a segment less that NCCL holds.
Status SegmentStore::Deregister(const std::vector<engine::SegmentIndex>& segments) {
  const ContextGuard current = basis_.MakeCurrent();
  Status first;
  for (const engine::SegmentIndex index : segments) {
    Status status = registrations_.DeregisterSegment(index);
    if (first.ok()) first = status;
  }
  return first;
}

// In a pool that is neither symmetric nor registered a graph's memory belongs to its part, and never counts as free.
Status SegmentStore::CheckMayUnmap(Unmapped unmapped) const {
  const bool graphs_use_it =
      unmapped == Unmapped::kBlocksToo || basis_.configuration.symmetric() || !registrations_.empty();
  return graphs_use_it ? captures_.CheckNoneLive() : Status();
}

// The largest index goes first, the same on every rank.
std::vector<engine::SegmentIndex> SegmentStore::ChooseFree(uint64_t keep_bytes, Pinned pinned) const {
  std::vector<engine::SegmentIndex> chosen;
  MutexLock lock(blocks_.mutex());
  uint64_t reserved = blocks_.engine().counters().reserved_bytes.current;
  std::vector<engine::SegmentIndex> free = blocks_.engine().WhollyFreeSegments();
  // In rising order, so that the largest index is the last.
  for (; reserved > keep_bytes && !free.empty(); free.pop_back()) {
    if (pinned == Pinned::kStay && IsPinned(free.back())) continue;
    chosen.push_back(free.back());
    reserved -= Get(free.back()).bytes();
  }
  return chosen;
}

// From the engine outwards: who could hand the memory out forgets it first, the driver gets it last.
Result<bool> SegmentStore::ReleaseOne(engine::SegmentIndex index, Addresses addresses, uint64_t* released) {
  // The engine forgets the segment first, so that no thread gets a block of it. The address table forgets it before the
  // memory goes, because the driver may then give its addresses to another pool.
  {
    MutexLock lock(blocks_.mutex());
    if (!blocks_.engine().IsIdle(index)) return false;
    blocks_.engine().RemoveSegment(index);
  }
  // From here on nobody finds it: neither the engine nor the books.
  const std::unique_ptr<Segment> segment = Take(index);
  const engine::SegmentRange range{segment->address(), segment->bytes()};
  basis_.runtime.addresses.Remove(range.address);
  LogSegment(range, basis_.name(), "gives back");
  basis_.record.SegmentGone(range.address, range.bytes);
  basis_.runtime.observer.SegmentGone(range.address);
  *released += range.bytes;
  ReturnRoom(range.bytes);
  if (addresses == Addresses::kKeep) segment->KeepAddresses();
  const WithoutFastPaths uncached;  // a function of the program may run
  COMMPOOL_TRY(segment->Release());
  return true;
}

// `asleep_bytes_` changes under the growth lock alone, so no bytes are returned twice.
void SegmentStore::ReturnRoom(uint64_t bytes) {
  // Memory that sleeps has returned its room already.
  const uint64_t asleep = std::min(bytes, asleep_bytes());
  asleep_bytes_.fetch_sub(asleep, std::memory_order_relaxed);
  account_->Return(bytes - asleep);
}

// Stops at the first failure; what went before stays gone.
Result<uint64_t> SegmentStore::Release(const std::vector<engine::SegmentIndex>& segments) {
  uint64_t released = 0;
  const ContextGuard current = basis_.MakeCurrent();
  for (const engine::SegmentIndex index : segments) {
    COMMPOOL_TRY(ReleaseOne(index, Addresses::kFree, &released));
  }
  return released;
}

// Its room stays taken: the memory is there.
void SegmentStore::SetAside(NewSegments segments, Aside how) {
  MutexLock lock(mutex_);
  NewSegments& others = how == Aside::kPinned ? pinned_aside_ : set_aside_;
  others.splice(others.end(), segments);
}

// The caller releases or abandons them without the lock.
NewSegments SegmentStore::TakeSetAside(Pinned pinned) {
  MutexLock lock(mutex_);
  NewSegments taken = std::exchange(set_aside_, {});
  if (pinned == Pinned::kGo) taken.splice(taken.end(), pinned_aside_);
  return taken;
}

// Goes on after a failure, and returns the first.
Status SegmentStore::ReleaseSetAside(Pinned pinned) {
  const ContextGuard current = basis_.MakeCurrent();
  Status first;
  for (NewSegment& segment : TakeSetAside(pinned)) {
    Status status = segment.Release();
    if (first.ok()) first = status;
  }
  return first;
}

// All segments or none: after a failure the peers lose those that they had got.
Status SegmentStore::Grant(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  COMMPOOL_TRY(basis_.CheckAwake());  // under the lock, so the pool cannot fall asleep meanwhile
  const std::vector<int> known = Peers();
  std::vector<int> joining;
  for (const int peer : peers) {
    if (peer == basis_.device->device()) continue;
    COMMPOOL_TRY(basis_.Named(backing_->CanGrant(peer)));
    if (std::find(known.begin(), known.end(), peer) == known.end()) joining.push_back(peer);
  }
  const std::vector<Segment*> segments = Pointers();
  for (size_t place = 0; place < segments.size() && !joining.empty(); ++place) {
    Status status = segments[place]->Grant(joining);
    if (status.ok()) continue;
    // The failed one too: some of its peers may have got access.
    for (size_t done = 0; done <= place; ++done) {
      for (const int peer : joining) static_cast<void>(segments[done]->Revoke(peer));
    }
    return status;
  }
  {
    // Last: from here on each new segment is granted to them.
    MutexLock lock(mutex_);
    peers_.insert(joining.begin(), joining.end());
    NoteOthersMayUse();
  }
  // What threads remember of default streams' handles holds no more: caches that end here make them ask again.
  blocks_.TakeBack(basis_.runtime.caches.Close(basis_.handle, ThreadCaches::Reopen::kAtNextUse));
  return Status();
}

// Work that a peer has submitted may use the pool, so access must not end before it.
Status SegmentStore::WaitForPeer(int peer) const {
  return basis_.Named(basis_.runtime.devices.Quiesce(peer, basis_.deadline_ms()).under("waiting for a peer"));
}

// Everything that can refuse, and every wait, comes first: from the first Revoke on a peer's work would fail.
Status SegmentStore::Revoke(const std::vector<int>& peers) {
  MutexLock growth(growth_);
  COMMPOOL_TRY(basis_.CheckAwake());
  COMMPOOL_TRY(basis_.Named(backing_->CanRevoke()));
  const std::vector<int> known = Peers();
  for (const int peer : peers) {
    if (std::find(known.begin(), known.end(), peer) == known.end()) {
      return Status(StatusCode::kNotFound, basis_.title + " was never granted to device " + std::to_string(peer));
    }
  }
  COMMPOOL_TRY(basis_.runtime.devices.CheckNotCapturing({peers.begin(), peers.end()}));
  COMMPOOL_TRY(basis_.device->Quiesce(basis_.deadline_ms()));
  for (const int peer : peers) COMMPOOL_TRY(WaitForPeer(peer));
  for (const int peer : peers) {
    for (Segment* segment : Pointers()) COMMPOOL_TRY(segment->Revoke(peer));
    MutexLock lock(mutex_);
    peers_.erase(peer);
    NoteOthersMayUse();
  }
  return Status();
}

void SegmentStore::NoteOthersMayUse() {
  const size_t own = peers_.count(basis_.device->device());
  others_may_use_.store(made_for_others_ || peers_.size() > own, std::memory_order_release);
}

std::vector<int> SegmentStore::Peers() const {
  MutexLock lock(mutex_);
  return {peers_.begin(), peers_.end()};
}

MemoryFacts SegmentStore::Access() const {
  std::map<int, Grants> devices;
  for (const int device : backing_->OpenTo()) devices.emplace(device, Grants::kReadWrite);
  for (const int peer : Peers()) devices.emplace(peer, backing_->grants());
  MemoryFacts facts;
  for (const auto& [device, may] : devices) {
    facts.what += std::to_string(device) + (may == Grants::kRead ? ":read " : " ");
  }
  const bool on_host = backing_->placement().kind == Placement::Kind::kHostNuma;
  facts.what = on_host ? facts.what + "cpu" : facts.what.substr(0, facts.what.size() - 1);
  const char* const why = backing_->row().why_no_revoke;
  facts.why = why == nullptr ? "granted" : why;
  return facts;
}

// An assertion and no error: the engine hands out each number once.
void SegmentStore::Put(engine::SegmentIndex index, std::unique_ptr<Segment> segment) {
  MutexLock lock(mutex_);
  const bool added = segments_.emplace(index, std::move(segment)).second;
  COMMPOOL_CHECK(added, "a segment's number is used twice");
}

std::unique_ptr<Segment> SegmentStore::Take(engine::SegmentIndex index) {
  MutexLock lock(mutex_);
  auto node = segments_.extract(index);
  COMMPOOL_CHECK(!node.empty(), "a segment is taken twice");
  return std::move(node.mapped());
}

// The reference outlives the lock, so the caller must hold `growth`.
Segment& SegmentStore::Get(engine::SegmentIndex index) const {
  MutexLock lock(mutex_);
  const auto found = segments_.find(index);
  COMMPOOL_CHECK(found != segments_.end(), "a segment is missing from its pool");
  return *found->second;
}

// The map is ordered by number. The list may be out of date unless the caller holds `growth`.
std::vector<SegmentToRegister> SegmentStore::List() const {
  std::vector<SegmentToRegister> list;
  MutexLock lock(mutex_);
  for (const auto& [index, segment] : segments_) list.push_back({index, segment->address(), segment->bytes()});
  return list;
}

std::vector<engine::SegmentIndex> SegmentStore::Indexes() const {
  std::vector<engine::SegmentIndex> indexes;
  MutexLock lock(mutex_);
  for (const auto& [index, segment] : segments_) indexes.push_back(index);
  return indexes;
}

// A copy, so that the driver is called without the lock. Callers hold `growth` where a segment could go meanwhile.
std::vector<Segment*> SegmentStore::Pointers() const {
  std::vector<Segment*> pointers;
  MutexLock lock(mutex_);
  for (const auto& [index, segment] : segments_) pointers.push_back(segment.get());
  return pointers;
}

uint64_t SegmentStore::count() const {
  MutexLock lock(mutex_);
  return segments_.size();
}

// How a pool gives up a communicator on this rank alone: after a loss no call reaches every rank. The order is: abandon
// every communicator while it is alive, abort them, then close() or rehome(). NCCL ends a registration without the
// other ranks, but not once its communicator was aborted: then it keeps the windows' memory.

// Does not call NCCL: the program says that the communicator has ended.
void SegmentStore::ForgetCommunicator(ncclComm_t communicator) {
  const uint64_t held = registrations_.Forget(communicator);
  if (held == 0) return;
  Log(LogLevel::kWarning,
      basis_.title + ": its communicator ended before abandon(), so NCCL " +
          FormatNcclVersion(basis_.driver.nccl.version) + " holds " + FormatBytes(held) +
          " of windows until the process ends: abandon a communicator while it is alive, then abort "
          "it, then close()");
}

// When its registrations end, this rank can no longer reach its peers' windows. So work on them gets until the deadline
// to finish. Work that still runs then waits for the lost rank, until the communicator is aborted: it needs no window.
Status SegmentStore::LetTheDeviceFinish() {
  const Status status = blocks_.WaitForDevice();
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  Log(LogLevel::kInfo, basis_.title + ": abandon goes on: " + status.message());
  return Status();
}

// Takes the collective lock, so it waits for a collective call of the pool that is under way.
Status SegmentStore::EndRegistrations(ncclComm_t communicator) {
  const auto began = std::chrono::steady_clock::now();
  MutexLock collective(collective_);
  if (!registrations_.Has(communicator)) return Status();
  COMMPOOL_TRY(CheckMayUnmap());
  // Without a segment that NCCL knows, nothing on the device can need the registration.
  if (registrations_.IsRegisteredWith(communicator)) COMMPOOL_TRY(LetTheDeviceFinish());
  const ContextGuard current = basis_.MakeCurrent();
  // The wait for the device took a part of the deadline. NCCL gets the rest, so that the whole call keeps one deadline.
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began);
  const uint64_t spent_ms = static_cast<uint64_t>(waited.count());
  const uint64_t deadline_ms = basis_.deadline_ms();
  Status ended = registrations_.EndUnfinished(communicator, deadline_ms - std::min(deadline_ms, spent_ms));
  const Status removed = registrations_.Remove(communicator);
  if (ended.ok()) ended = removed;
  // After a failure nobody tries again: the pool drops the handles, and uses this communicator no more.
  if (!ended.ok()) Log(LogLevel::kWarning, basis_.title + ": abandon: " + ended.message());
  return Status();
}

// The program says whether the communicator lives. NCCL cannot be asked about one that was destroyed.
Status SegmentStore::AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) {
  if (life == CommunicatorLife::kAlive) return basis_.Named(EndRegistrations(communicator).under("abandon"));
  basis_.runtime.unanswered.NoteIdle(communicator);
  ForgetCommunicator(communicator);
  return Status();
}

// Pool::Abandon calls it as the runtime ends. Frees that come later find no owner of the address.
void SegmentStore::Abandon() {
  for (Segment* segment : Pointers()) {
    segment->Abandon();
    basis_.runtime.addresses.Remove(segment->address());
  }
  for (NewSegment& segment : TakeSetAside(Pinned::kGo)) segment.Abandon();
  kept_.Abandon();
}

}  // namespace commpool::internal
