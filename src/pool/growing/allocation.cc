// The way of a request through a growing pool: free memory, the threads' caches, growth, and the search when the device
// has no more.
#include <optional>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/try.h"
#include "src/driver/graph_handles.h"
#include "src/pool/growing/growing_mode.h"

namespace commpool::internal {

namespace {

// While fences are pending each so many allocations ask which have passed: that costs the driver a call for each
// stream.
constexpr uint32_t kAllocationsForPoll = 4;

constexpr int kMostRequests = 8;  // to the other allocators of the process, for one allocation

}  // namespace

Result<CUdeviceptr> GrowingMode::Allocate(uint64_t bytes, StreamKey stream) {
  COMMPOOL_TRY(stranded_.Passed(stream));
  bool asked = false;
  const bool chores = captures_.any_known() || basis_.device->captures().any() ||
                      basis_.configuration.release_threshold_bytes != UINT64_MAX;
  if (!chores) {
    std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeAtOnce(bytes, stream, asked));
    if (served) return *served;
  }
  return AllocateSlowly(bytes, stream, asked);
}

GrowingMode::Address GrowingMode::ServeAtOnce(uint64_t bytes, StreamKey stream, bool& asked) {
  engine::SegmentRange block;
  {
    MutexLock lock(blocks_.mutex());
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
  if (block.bytes == 0) return std::optional<CUdeviceptr>();
  blocks_.Announce(block, bytes, stream, Caching::kYes);
  return std::optional<CUdeviceptr>(block.address);
}

Result<CUdeviceptr> GrowingMode::AllocateSlowly(uint64_t bytes, StreamKey stream, bool asked) {
  CollectGraphs();
  std::optional<RelaxedCapture> relaxed;
  if (basis_.device->captures().any()) {  // of this pool or another: the stream may be in it
    const engine::Part part = COMMPOOL_TRY(captures_.PartOf(stream));
    if (part != engine::kCommonPart) return AllocateInCapture(bytes, stream, part);
    relaxed.emplace(basis_.driver);  // what this thread asks the driver for is no part of anybody's capture
  }
  if (blocks_.PollFences()) asked = false;
  KeepToThreshold();
  std::optional<CUdeviceptr> served = COMMPOOL_TRY(Serve(bytes, stream, asked));
  if (!served && stranded_.Relieve(bytes, stream)) served = COMMPOOL_TRY(Serve(bytes, stream, false));
  if (served) return *served;
  const Status possible = segments_.CheckPossible(bytes);
  if (!possible.ok()) return Status(possible.code(), possible.message() + basis_.DescribeHolders());
  Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream, Effort::kUsual);
  if (grown.ok() || grown.status().code() != StatusCode::kOutOfMemory) return grown;
  return Search(bytes, stream, grown.status());
}

Result<CUdeviceptr> GrowingMode::AllocateInCapture(uint64_t bytes, StreamKey stream, engine::Part part) {
  for (;;) {  // another stream of the capture may take what one growth made
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

Status GrowingMode::GrowInCapture(uint64_t bytes, StreamKey stream, engine::Part part) {
  if (!segments_.registrations().empty()) {
    return Status(StatusCode::kOutOfMemory, basis_.title + ", which is registered, does not grow there");
  }
  COMMPOOL_TRY(segments_.CheckPossible(bytes));
  const RelaxedCapture relaxed(basis_.driver);
  return grower_->Grow(bytes, stream, Effort::kUsual, part);
}

GrowingMode::Address GrowingMode::Serve(uint64_t bytes, StreamKey stream, bool asked) {
  std::optional<CUdeviceptr> served;
  if (!asked) served = COMMPOOL_TRY(ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream));
  if (served || !blocks_.DrainCaches()) return served;
  return ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream);
}

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
    // A block that its part had before waits inside its own capture.
    if (part != engine::kCommonPart || blocks_.MayWaitFor(served)) break;
    blocks_.TakeBackUnserved(served);  // closed from now on: the next try finds other memory, or none
  }
  const Caching caching = part == engine::kCommonPart ? CachingNow() : Caching::kNo;
  CUdeviceptr address = COMMPOOL_TRY(blocks_.HandOut(served, bytes, stream, caching));
  return std::optional<CUdeviceptr>(address);
}

GrowingMode::Address GrowingMode::ServeFromAnyStream(uint64_t bytes, StreamKey stream) {
  MutexLock growth(segments_.growth());  // the streams waited for are not released meanwhile (ForgetStream)
  return ServeFromFreeMemory(bytes, stream, engine::Reuse::kAnyStream);
}

Result<CUdeviceptr> GrowingMode::ServeAfterGrowth(uint64_t bytes, StreamKey stream, Effort effort) {
  // Other threads may take what one growth made, so it can need more than one; each makes room for somebody.
  for (;;) {
    COMMPOOL_TRY(grower_->Grow(bytes, stream, effort));
    std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeFromFreeMemory(bytes, stream, engine::Reuse::kSameStream));
    // The new memory may have merged with neighbours that another stream used: growing again would not help.
    if (!served) served = COMMPOOL_TRY(ServeFromAnyStream(bytes, stream));
    if (served) return *served;
  }
}

Result<CUdeviceptr> GrowingMode::Search(uint64_t bytes, StreamKey stream, const Status& growth_failure) {
  // Memory that other streams used last: a device-side wait is cheaper than a host one.
  std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeFromAnyStream(bytes, stream));
  if (served) return *served;

  // After a host wait free neighbours merge, whichever streams used them.
  PoolEvents::Count(basis_.events.host_waits);
  COMMPOOL_TRY(blocks_.WaitForDevice());
  served = COMMPOOL_TRY(ServeFromAnyStream(bytes, stream));
  if (served) return *served;

  Status failure = growth_failure;
  if (bytes <= basis_.configuration.limit_bytes && segments_.FitsEmptyPlacement(bytes)) {
    Result<CUdeviceptr> found = SearchElsewhere(bytes, stream);
    if (found.ok() || found.status().code() != StatusCode::kOutOfMemory) return found;
    failure = found.status();
  }
  return Status(StatusCode::kOutOfMemory,
                "no memory for " + FormatBytes(bytes) + " in " + failure.message() + basis_.DescribeHolders());
}

Result<CUdeviceptr> GrowingMode::SearchElsewhere(uint64_t bytes, StreamKey stream) {
  const auto final = [](const Result<CUdeviceptr>& grown) {
    return grown.ok() || grown.status().code() != StatusCode::kOutOfMemory;
  };
  // Free segments that are too small for the request: of this pool, then of the others on the device.
  if (!grower_->MovesPages()) ReleaseUnused();
  // Where the pool's own limit is in the way, nobody else's memory helps.
  const bool room = segments_.FitsOwnLimit(bytes);
  if (room) basis_.ReleaseOtherPools();
  Result<CUdeviceptr> grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
  if (final(grown)) return grown;
  if (grower_->MovesPages() && ReleaseUnused() > 0) {
    grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
    if (final(grown)) return grown;
  }
  if (!room) return grown;
  // Other allocators of the process, as long as they give: a few times, for what they say need not be so.
  const int device = basis_.device->device();
  for (int time = 0; time < kMostRequests && basis_.runtime.holders.Release(device, bytes) > 0; ++time) {
    grown = ServeAfterGrowth(bytes, stream, Effort::kPressure);
    if (final(grown)) return grown;
  }
  return grown;
}

}  // namespace commpool::internal
