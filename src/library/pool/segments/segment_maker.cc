// SegmentMaker: growth and its undoing, one segment at a time.
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/pool/segments/segment_store.h"
#include "src/library/pool/shared/memory_observer.h"

namespace commpool::internal {

// Only a program's own functions make memory in the order of a stream. The driver's memory is ready at once.
Result<std::unique_ptr<Segment>> SegmentMaker::MakeFor(std::optional<StreamKey> stream, uint64_t bytes) {
  const WithoutFastPaths uncached;  // a function of the program may run
  const int device = basis_.device->device();
  // The functions may put work on the stream; a capture would record that work into its graph.
  const bool named = stream && backing_.makes_in_stream_order() && IsReachable(*stream) && PlaceOf(*stream) == device &&
                     !basis_.device->capturing();
  std::unique_ptr<Segment> segment = COMMPOOL_TRY(
      backing_.Make({.bytes = bytes, .stream = named ? StreamOfKey(*stream) : nullptr, .peers = peers_.Devices()}));
  // A capture waits for nobody, and the program's functions put no work on the default stream then.
  if (!backing_.makes_in_stream_order() || (!named && basis_.device->capturing())) return segment;
  // Parts of the segment may serve other streams next. So wait here for the work that the functions put on the stream:
  // then free memory never has to wait for its maker. Growth is rare enough for that.
  FenceTable& fences = basis_.fences();
  const Result<FenceId> fence = fences.Record(named ? *stream : KeyOfStream(nullptr, device));
  // While a blocking stream captures the default stream takes no work, so the functions put none there.
  if (!named && fence.status().code() == StatusCode::kFailedPrecondition) return segment;
  COMMPOOL_TRY(fence.status());
  const Status status = fences.Await(*fence, basis_.deadline_ms());
  fences.Retire(*fence);
  if (!status.ok()) return status.under("memory that the program's function made");
  return segment;
}

// The program's own functions may return any address. So it is checked here, and entered in the process's table, before
// the engine knows it. Each failure on the way releases what was made: room, segment and entry go back with their
// objects.
Result<NewSegment> SegmentMaker::Make(uint64_t bytes, Room room, std::optional<StreamKey> stream) {
  std::unique_ptr<Segment> segment = COMMPOOL_TRY(MakeFor(stream, bytes));
  if (segment->address() % basis_.configuration.alignment_bytes != 0) {
    return InvalidArgument("the ", backing_.name(),
                           " backing returned an address that is no multiple of the pool's "
                           "alignment of ",
                           basis_.configuration.alignment_bytes, " bytes");
  }
  Result<AddressTable::Entry> entry =
      basis_.runtime.addresses.Add(segment->address(), segment->bytes(), basis_.owner.lock());
  // The segment goes back to the backing with its object.
  if (!entry.ok()) {
    return entry.status().under(std::string("the ") + backing_.name() + " backing returned memory that is in use");
  }
  return NewSegment(std::move(room), std::move(segment), std::move(*entry));
}

// Observers hear of it first: they must know the segment before they hear of a block in it.
engine::SegmentIndex SegmentMaker::Adopt(NewSegment segment, engine::Space space, engine::Part part) {
  const engine::SegmentRange range{segment->address(), segment->bytes()};
  LogSegment(range, basis_.name(), "makes");
  basis_.record.Tell(recording::SegmentMade{.address = range.address, .bytes = range.bytes});
  if (tells_heaps_) basis_.runtime.observer.SegmentMade(range, basis_.tool.domain());
  MutexLock lock(blocks_.mutex());
  // The engine and the books learn of it under one hold of the lock: nobody gets a block of a segment that is not
  // there.
  const engine::SegmentIndex index = blocks_.engine().AddSegment(range, space, part);
  book_.Put(index, segment.Adopt());
  return index;
}

// The largest index goes first, the same on every rank.
std::vector<engine::SegmentIndex> SegmentMaker::ChooseFree(uint64_t keep_bytes, Pinned pinned) const {
  std::vector<engine::SegmentIndex> chosen;
  MutexLock lock(blocks_.mutex());
  uint64_t reserved = blocks_.engine().counters().reserved_bytes.current;
  std::vector<engine::SegmentIndex> free = blocks_.engine().WhollyFreeSegments();
  // In rising order, so that the largest index is the last.
  for (; reserved > keep_bytes && !free.empty(); free.pop_back()) {
    if (pinned == Pinned::kStay && registrations_.IsRegistered(free.back())) continue;
    chosen.push_back(free.back());
    reserved -= book_.Get(free.back()).bytes();
  }
  return chosen;
}

// From the engine outwards: who could hand the memory out forgets it first, the driver gets it last.
Result<uint64_t> SegmentMaker::ReleaseOne(engine::SegmentIndex index, Addresses addresses) {
  // The engine forgets the segment first, so that no thread gets a block of it. The address table forgets it before the
  // memory goes, because the driver may then give its addresses to another pool.
  {
    MutexLock lock(blocks_.mutex());
    if (!blocks_.engine().IsIdle(index)) return uint64_t{0};
    blocks_.engine().RemoveSegment(index);
  }
  // From here on nobody finds it: neither the engine nor the books.
  std::unique_ptr<Segment> segment = book_.Take(index);
  const engine::SegmentRange range{segment->address(), segment->bytes()};
  basis_.runtime.addresses.Remove(range.address);
  LogSegment(range, basis_.name(), "gives back");
  basis_.record.Tell(recording::SegmentGone{.address = range.address, .bytes = range.bytes});
  basis_.runtime.observer.SegmentGone(range.address);
  if (addresses == Addresses::kKeep) segment->KeepAddresses();
  COMMPOOL_TRY(ReleaseOrSetAside({room_.Of(range.bytes), std::move(segment), AddressTable::Entry()}));
  return range.bytes;
}

// Stops at the first failure; what went before stays gone.
Result<uint64_t> SegmentMaker::Release(const std::vector<engine::SegmentIndex>& segments) {
  uint64_t released = 0;
  const ContextGuard current = basis_.MakeCurrent();
  const RelaxedCapture relaxed(basis_.driver);  // another thread may capture, unannounced
  for (const engine::SegmentIndex index : segments) {
    const uint64_t gone = COMMPOOL_TRY(ReleaseOne(index, Addresses::kFree));
    released += gone;
  }
  return released;
}

// Its room stays taken as long as it is mapped.
Status SegmentMaker::ReleaseOrSetAside(NewSegment segment) {
  const WithoutFastPaths uncached;  // a function of the program may run
  Status status = segment->Release();
  if (segment->lives()) {
    NewSegments refused;
    refused.push_back(std::move(segment));
    book_.SetAside(std::move(refused), SegmentBook::Aside::kRefused);
  }
  return status;
}

Status SegmentMaker::ReleaseSetAside(Pinned pinned) {
  NewSegments segments = book_.TakeSetAside(pinned);
  if (segments.empty()) return Status();  // as nearly always
  const ContextGuard current = basis_.MakeCurrent();
  const RelaxedCapture relaxed(basis_.driver);  // another thread may capture, unannounced
  return FirstFailureOf(segments, [&](NewSegment& segment) { return ReleaseOrSetAside(std::move(segment)); });
}

}  // namespace commpool::internal
