// How a growing pool serves a request: free memory, the threads' caches, growth, then the search when the device is
// full.
#include <optional>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/try.h"
#include "src/driver/graph_handles.h"
#include "src/pool/growing/growing_mode.h"

namespace commpool::internal {

namespace {

// While fences are pending, one allocation in so many asks which have passed. To ask costs a driver call for each
// stream.
constexpr uint32_t kAllocationsForPoll = 4;

constexpr int kMostRequests = 8;  // how often one allocation asks the process's other allocators for memory

}  // namespace

// Two ways. Most requests take free memory that their stream may use at once, under one hold of the lock. Everything
// that is rarer, or that needs a driver call, is in AllocateSlowly.
Result<CUdeviceptr> GrowingMode::Allocate(uint64_t bytes, StreamKey stream) {
  // First, because this call passes the stream and so may record on it (rule 11).
  COMMPOOL_TRY(stranded_.Passed(stream));
  // Whether free memory was asked already, so that the slow way need not ask again.
  bool asked = false;
  // Chores come before an allocation: to collect graphs that are gone, to mind captures, to keep to the threshold.
  const bool chores = captures_.any_known() || basis_.device->captures().any() ||
                      basis_.configuration.release_threshold_bytes != UINT64_MAX;
  if (!chores) {
    std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeAtOnce(bytes, stream, asked));
    if (served) return *served;
  }
  return AllocateSlowly(bytes, stream, asked);
}

// The usual way of a request that no cache serves, so it makes no driver call and looks at nothing outside of the
// engine.
GrowingMode::Address GrowingMode::ServeAtOnce(uint64_t bytes, StreamKey stream, bool& asked) {
  engine::SegmentRange block;
  {
    MutexLock lock(blocks_.mutex());
    // Without a pending fence a look at fences frees nothing, so such allocations do not count.
    if (engine().HasPendingFences()) ++since_poll_;
    asked = since_poll_ < kAllocationsForPoll;
    if (!asked) {
      since_poll_ = 0;
      return std::optional<CUdeviceptr>();
    }
    blocks_.NoteHolding();
    const Result<engine::SegmentRange> served = engine().AllocateOwn(bytes, stream);
    if (!served.ok()) return basis_.Named(served.status());
    block = *served;
  }
  // Free memory could not serve it. `asked` is true now.
  if (block.bytes == 0) return std::optional<CUdeviceptr>();
  blocks_.Announce(block, bytes, stream, CachingOf(stream));
  return std::optional<CUdeviceptr>(block.address);
}

// In this order: chores; free memory and caches; memory of streams that may be gone; growth; the search of rule 7. A
// stream that captures leaves this way after the first step, because most others would break its capture.
Result<CUdeviceptr> GrowingMode::AllocateSlowly(uint64_t bytes, StreamKey stream, bool asked) {
  // Memory of graphs that are gone may serve this request.
  CollectGraphs();
  std::optional<RelaxedCapture> relaxed;
  if (basis_.device->captures().any()) {  // of any pool: the stream may belong to it
    const engine::Part part = COMMPOOL_TRY(captures_.PartOf(stream));
    if (part != engine::kCommonPart) return AllocateInCapture(bytes, stream, part);
    relaxed.emplace(basis_.driver);  // this thread's driver calls must not become part of a capture
  }
  if (blocks_.PollFences()) asked = false;  // more memory may be free now
  KeepToThreshold();
  // Read before the search: a wait of another thread that ends after this has freed memory which the search may have
  // missed.
  const uint64_t times_freed = stranded_.times_freed();
  std::optional<CUdeviceptr> served = COMMPOOL_TRY(Serve(bytes, stream, asked));
  if (!served && stranded_.MakeUsable(bytes, stream, times_freed)) served = COMMPOOL_TRY(Serve(bytes, stream, false));
  if (served) return *served;
  // Before growth: a request that no empty device could serve must not make others give memory back.
  const Status possible = segments_.CheckPossible(bytes);
  if (!possible.ok()) return Status(possible.code(), possible.message() + basis_.DescribeHolders());
  Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream, Effort::kUsual);
  // Only a lack of memory starts the search. A lost device or a closed pool would fail there again.
  if (grown.ok() || grown.status().code() != StatusCode::kOutOfMemory) return grown;
  recording::Span span = basis_.record.Began(recording::SpanKind::kSearch, "search", bytes);
  return span.Ended(Search(bytes, stream, grown.status()));
}

// Neither caches nor the search: a wait would break the capture, and a cached block belongs to no graph.
Result<CUdeviceptr> GrowingMode::AllocateInCapture(uint64_t bytes, StreamKey stream, engine::Part part) {
  for (;;) {  // another stream of the capture may take the memory of one growth
    std::optional<CUdeviceptr> served =
        COMMPOOL_TRY(ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream, part));
    if (served) return *served;
    const Status grown = GrowInCapture(bytes, stream, part);
    if (grown.ok()) continue;
    if (grown.code() != StatusCode::kOutOfMemory) return grown;
    return Status(StatusCode::kOutOfMemory,
                  "no idle memory for " + FormatBytes(bytes) + " in a capture, and " + grown.message() + ": " +
                      FormatBytes(blocks_.counters().free_bytes) +
                      " are free, in use by streams or too small. Synchronise and reserve() before the capture" +
                      basis_.DescribeHolders());
  }
}

// NCCL would not know the new memory: nothing is registered in a capture (rule 6). So a registered pool must have been
// reserved before.
Status GrowingMode::GrowInCapture(uint64_t bytes, StreamKey stream, engine::Part part) {
  if (!segments_.registrations().empty()) {
    return Status(StatusCode::kOutOfMemory, basis_.title + ", which is registered, does not grow there");
  }
  COMMPOOL_TRY(segments_.CheckPossible(bytes));
  // Making memory is no work of a stream, but a capture in the usual mode forbids such calls.
  const RelaxedCapture relaxed(basis_.driver);
  return grower_->Grow(bytes, stream, Effort::kUsual, part);
}

// Caches of all threads come before growth: what they hold is free for the program.
GrowingMode::Address GrowingMode::Serve(uint64_t bytes, StreamKey stream, bool asked) {
  std::optional<CUdeviceptr> served;
  if (!asked) served = COMMPOOL_TRY(ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream));
  if (served || !blocks_.DrainCaches()) return served;
  return ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream);
}

// It asks again where a block needs a wait that no stream may make now. Each round closes one block, so it ends.
GrowingMode::Address GrowingMode::ServeFromFreeMemory(uint64_t bytes, StreamKey stream, engine::Reuse reuse,
                                                      engine::Part part) {
  engine::Served served;
  for (;;) {
    {
      MutexLock lock(blocks_.mutex());
      blocks_.NoteHolding();
      Result<engine::Outcome> outcome = engine().Allocate(bytes, stream, reuse, part);
      if (!outcome.ok()) return basis_.Named(outcome.status());
      if (std::holds_alternative<engine::Grow>(*outcome)) return std::optional<CUdeviceptr>();
      served = std::move(std::get<engine::Served>(*outcome));
    }
    // The part's own memory was used inside this capture, so a wait for its uses becomes an edge of the graph.
    if (part != engine::kCommonPart || blocks_.MayWaitFor(served)) break;
    blocks_.TakeBackUnserved(served, *this);  // now closed: the next try finds other memory, or none
  }
  // A graph's block must not get into a cache, which would serve it outside of the graph.
  const Caching caching = part == engine::kCommonPart ? CachingNow(stream) : Caching::kNo;
  CUdeviceptr address = COMMPOOL_TRY(blocks_.HandOut(served, bytes, stream, caching, *this));
  return std::optional<CUdeviceptr>(address);
}

// Costs the stream a wait on the device, so it comes after memory that the stream used itself.
GrowingMode::Address GrowingMode::ServeFromAnyStream(uint64_t bytes, StreamKey stream) {
  MutexLock growth(segments_.growth());  // nobody forgets the streams that we wait for meanwhile (ForgetStream)
  return ServeFromFreeMemory(bytes, stream, engine::Reuse::kAnyStream);
}

// The caller holds no lock: each growth takes `growth`, each try the pool's lock.
Result<CUdeviceptr> GrowingMode::ServeAfterGrowth(uint64_t bytes, StreamKey stream, Effort effort) {
  // Another thread may take what one growth made, so repeat; each round makes room for somebody.
  for (;;) {
    COMMPOOL_TRY(grower_->Grow(bytes, stream, effort));
    std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream));
    // The new memory may have merged with memory that another stream used. To grow again would not help.
    if (!served) served = COMMPOOL_TRY(ServeFromAnyStream(bytes, stream));
    if (served) return *served;
  }
}

// Each step costs more than the one before: a wait of the stream, a wait of the host, then memory of others.
Result<CUdeviceptr> GrowingMode::Search(uint64_t bytes, StreamKey stream, const Status& growth_failure) {
  // Try memory that other streams used last: a wait on the device costs less than a wait on the host.
  std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeFromAnyStream(bytes, stream));
  if (served) return *served;

  // After a wait on the host free neighbours merge, whichever streams used them.
  PoolEvents::Count(basis_.events.host_waits);
  COMMPOOL_TRY(blocks_.WaitForDevice());
  served = COMMPOOL_TRY(ServeFromAnyStream(bytes, stream));
  if (served) return *served;

  // The error that the caller gets where the rest of the search finds nothing either.
  Status failure = growth_failure;
  if (bytes <= basis_.configuration.limit_bytes && segments_.FitsEmptyPlacement(bytes)) {
    Result<CUdeviceptr> found = SearchElsewhere(bytes, stream);
    if (found.ok() || found.status().code() != StatusCode::kOutOfMemory) return found;
    failure = found.status();
  }
  return Status(StatusCode::kOutOfMemory,
                "no memory for " + FormatBytes(bytes) + " in " + failure.message() + basis_.DescribeHolders());
}

// Pools before allocators of others: ours say exactly what they released. Holds no lock, because the others take
// theirs.
Result<CUdeviceptr> GrowingMode::SearchElsewhere(uint64_t bytes, StreamKey stream) {
  const auto final = [](const Result<CUdeviceptr>& grown) {
    return grown.ok() || grown.status().code() != StatusCode::kOutOfMemory;
  };
  // Releases free segments that are too small for the request: of this pool, then of the others on the device.
  if (!grower_->MovesPages()) ReleaseUnused();
  // Where the pool's own limit is in the way, memory of others does not help.
  const bool room = segments_.FitsOwnLimit(bytes);
  if (room) basis_.ReleaseOtherPools();
  Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
  if (final(grown)) return grown;
  if (grower_->MovesPages() && ReleaseUnused() > 0) {
    grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
    if (final(grown)) return grown;
  }
  if (!room) return grown;
  // Asks the process's other allocators as long as they give. A few times only, because what they say may be wrong.
  const int device = basis_.device->device();
  for (int time = 0; time < kMostRequests && basis_.runtime.holders.Release(device, bytes) > 0; ++time) {
    grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
    if (final(grown)) return grown;
  }
  return grown;
}

}  // namespace commpool::internal
