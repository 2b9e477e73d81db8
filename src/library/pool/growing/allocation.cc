// How a growing pool serves a request: free memory at once, or the slow way, a table of steps.
#include <algorithm>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"
#include "src/library/pool/growing/growing_mode.h"

namespace commpool::internal {

namespace {

// While fences are pending, one allocation in so many asks which have passed. To ask costs a driver call for each
// stream.
constexpr uint32_t kAllocationsForPoll = 4;

constexpr const char* kInPieces =
    ". The pool has as much free, but in smaller pieces: mode = EXPANDABLE moves them together";
constexpr const char* kInGraphs = ". The pool has as much free, in smaller pieces or for graphs that live";
constexpr int kMostRequests = 8;  // how often one allocation asks the process's other allocators for memory
constexpr int kMostWaits = 32;    // how often one allocation of the host's memory waits

}  // namespace

// The slow way, cheapest step first (rule 7, README.md).
const std::array<GrowingMode::Step, 9> GrowingMode::kSteps = {{
    {InCapture::kSkipped, Repeats::kNo, &GrowingMode::TakeWhatHasPassed},
    {InCapture::kSkipped, Repeats::kNo, &GrowingMode::DrainCaches},
    {InCapture::kSkipped, Repeats::kNo, &GrowingMode::FreeStranded},
    {InCapture::kTaken, Repeats::kWhileItHelps, &GrowingMode::GrowAsUsual},
    {InCapture::kSkipped, Repeats::kNo, &GrowingMode::ShareStreams},
    {InCapture::kSkipped, Repeats::kWhileItHelps, &GrowingMode::WaitOnTheHost},
    {InCapture::kSkipped, Repeats::kNo, &GrowingMode::ReleaseAndGrow},
    {InCapture::kSkipped, Repeats::kNo, &GrowingMode::ReleasePagesAndGrow},
    {InCapture::kSkipped, Repeats::kWhileItHelps, &GrowingMode::AskHolders},
}};

// The usual way of a request that no cache serves. Chores come before an allocation: to collect graphs that are gone,
// to keep to the threshold.
CUdeviceptr GrowingMode::ServeAtOnce(uint64_t bytes, StreamKey stream) {
  const bool chores = captures_.any_known() || has_threshold_;
  if (chores || stranded_.MayWant(stream)) return 0;
  engine::SegmentRange block;
  {
    MutexLock lock(blocks_.mutex());
    // Under the lock: a sleep or a close looks at the blocks after it has begun.
    if (!basis_.life.open() || stranded_.IsCrowded(stream, engine())) return 0;
    // Without a pending fence a look at fences frees nothing, so such allocations do not count.
    const bool counts = engine().HasPendingFences();
    if (counts && since_poll_ + 1 == kAllocationsForPoll) return 0;
    blocks_.NoteHolding();
    block = engine().AllocateOwn(bytes, stream);
    if (counts && block.bytes != 0) ++since_poll_;
  }
  if (block.bytes == 0) return 0;
  const bool small = block.bytes <= engine::kSmallBytes;
  blocks_.Announce(block, bytes, stream, small ? CachingOf(stream) : Caching::kNo);
  return block.address;
}

// Everything that is rarer than free memory at once, or that needs a driver call, is a step of the slow way. After a
// step that may have made memory available comes a try. A stream that captures takes few steps, because most would
// break its capture.
Result<CUdeviceptr> GrowingMode::Allocate(uint64_t bytes, StreamKey stream) {
  // First, because this call passes the stream and so may record on it (rule 11).
  if (stranded_.MayWant(stream)) COMMPOOL_TRY(stranded_.Passed(stream));
  const bool captures = basis_.device->captures().any();
  if (const CUdeviceptr served = captures ? 0 : ServeAtOnce(bytes, stream)) return served;
  Request request{.bytes = bytes, .stream = stream};
  blocks_.ReleaseParts(captures_.TakeGone());  // the memory of graphs that are gone may serve this request
  std::optional<RelaxedCapture> relaxed;
  if (basis_.device->captures().any()) {  // of any pool: the stream may belong to it
    request.part = COMMPOOL_TRY(captures_.PartOf(stream));
    relaxed.emplace(basis_.driver);  // this thread's driver calls must not become part of a capture
  }
  // Read before any try: a wait of another thread that ends after this has freed memory which a try may have missed.
  request.times_freed = stranded_.times_freed();
  const bool captured = request.part != engine::kCommonPart;
  if (captured) blocks_.PollFences();  // it takes idle memory alone
  std::optional<CUdeviceptr> served = captured ? COMMPOOL_TRY(Try(request)) : std::nullopt;
  for (const Step& step : kSteps) {
    if (served) break;
    if (captured && step.in_capture == InCapture::kSkipped) continue;
    bool helped = true;
    for (bool runs = true; runs && helped && !served; runs = step.repeats == Repeats::kWhileItHelps) {
      Result<bool> ran = (this->*step.run)(request);
      if (!ran.ok()) return Ended(request, ran.status());
      helped = *ran;
      if (helped) served = COMMPOOL_TRY(Try(request));
    }
  }
  return Ended(request, served ? Result<CUdeviceptr>(*served) : Result<CUdeviceptr>(OutOfMemoryFor(request)));
}

// A recording shows the steps after the first growth as a search, and each request for which there was no memory.
Result<CUdeviceptr> GrowingMode::Ended(Request& request, Result<CUdeviceptr> result) {
  if (result.status().code() == StatusCode::kOutOfMemory && !request.search) {
    request.search.emplace(basis_.record.Began(recording::SpanKind::kSearch, "search", request.bytes));
  }
  return request.search ? request.search->Ended(std::move(result)) : std::move(result);
}

// The stream's own memory and idle memory; then, once the request may wait on the device, that of other streams.
GrowingMode::Address GrowingMode::Try(const Request& request) {
  std::optional<CUdeviceptr> served = COMMPOOL_TRY(ServeFromFreeMemory(request, engine::Reuse::kSameStream));
  if (served || !request.shares_streams) return served;
  MutexLock growth(basis_.growth());  // nobody forgets the streams that we wait for meanwhile (ForgetStream)
  return ServeFromFreeMemory(request, engine::Reuse::kAnyStream);
}

// It asks again where a block needs a wait that no stream may make now. Each round closes one block, so it ends.
GrowingMode::Address GrowingMode::ServeFromFreeMemory(const Request& request, engine::Reuse reuse) {
  const bool captured = request.part != engine::kCommonPart;
  for (;;) {
    engine::Served served;
    {
      MutexLock lock(blocks_.mutex());
      COMMPOOL_TRY(basis_.CheckOpen());
      blocks_.NoteHolding();
      engine::Outcome outcome =
          COMMPOOL_TRY(basis_.Named(engine().Allocate(request.bytes, request.stream, reuse, request.part)));
      if (std::holds_alternative<engine::Grow>(outcome)) return std::optional<CUdeviceptr>();
      served = std::move(std::get<engine::Served>(outcome));
    }
    // A graph's block must not get into a cache, which would serve it outside of the graph. Where memory is so short
    // that streams share it, a small block may lie among large ones: cached it would keep them apart.
    // While a capture is open no cache may serve its streams, and any stream may be one of them. A cached block keeps
    // its segment from the driver, and a pool with a threshold wants to give segments back.
    const bool cacheable = !captured && reuse != engine::Reuse::kAnyStream && !has_threshold_ && !captures_.any_open();
    const Caching caching = cacheable ? CachingOf(request.stream) : Caching::kNo;
    // The part's own memory was used inside this capture.
    const Waits waits = captured ? Waits::kInCapture : Waits::kOutside;
    const CUdeviceptr address = COMMPOOL_TRY(blocks_.HandOut(served, request.bytes, request.stream, caching, waits));
    if (address != 0) return std::optional<CUdeviceptr>(address);
  }
}

// A try follows in any case: it was perhaps only time to look.
Result<bool> GrowingMode::TakeWhatHasPassed(Request& request) {
  bool crowded = false;
  {
    MutexLock lock(blocks_.mutex());
    if (engine().HasPendingFences()) since_poll_ = (since_poll_ + 1) % kAllocationsForPoll;
    crowded = stranded_.IsCrowded(request.stream, engine());
  }
  if (crowded && !basis_.device->capturing()) stranded_.LookAtOnce();
  blocks_.PollFences();
  KeepToThreshold();
  return true;
}

// What caches hold is free for the program.
Result<bool> GrowingMode::DrainCaches(Request&) { return blocks_.TakeBack(basis_.runtime.caches.Drain(basis_.handle)); }

Result<bool> GrowingMode::FreeStranded(Request& request) {
  return stranded_.MakeUsable(request.bytes, request.stream, request.times_freed);
}

// Another thread may take what one growth made, so the step repeats; each round makes room for somebody.
Result<bool> GrowingMode::GrowAsUsual(Request& request) {
  const bool captured = request.part != engine::kCommonPart;
  Status possible = segments_.room.CheckPossible(request.bytes);
  // NCCL would not know the new memory: nothing is registered in a capture (rule 6). So a registered pool must have
  // been reserved before.
  if (captured && !segments_.registrations.empty()) {
    possible = OutOfMemory(basis_.title, ", which is registered, does not grow there");
  }
  if (possible.ok()) return Grow(request, Effort::kUsual);
  // A request that no empty device could serve must not make others give memory back.
  if (!captured) return Failure(possible.code(), possible.message(), basis_.DescribeHolders());
  request.failure = possible;
  return false;
}

// The new memory may merge with memory that another stream used; to grow again would not help then. Only a lack of
// memory leads to the next step: a lost device or a closed pool would fail there again.
Result<bool> GrowingMode::Grow(Request& request, Effort effort) {
  const Status grown = grower_->Grow(request.bytes, request.stream, effort, request.part);
  if (!grown.ok() && grown.code() != StatusCode::kOutOfMemory) return grown;
  if (!grown.ok()) request.failure = grown;
  request.shares_streams |= grown.ok() && request.part == engine::kCommonPart;
  return grown.ok();
}

// A wait on the device costs less than a wait on the host.
Result<bool> GrowingMode::ShareStreams(Request& request) {
  request.search.emplace(basis_.record.Began(recording::SpanKind::kSearch, "search", request.bytes));
  request.shares_streams = true;
  return true;
}

// After it free neighbours merge, whichever streams used them. No stream may wait for the host's memory in place of the
// host, so another thread may take what a wait freed: then the step repeats, while what was freed meanwhile could hold
// the request.
Result<bool> GrowingMode::WaitOnTheHost(Request& request) {
  if (const int waits = request.host_waits++; waits > 0) {
    const bool of_host = FindBacking(basis_.configuration.backing.kind)->places == Places::kHost;
    uint64_t freed = 0;
    {
      MutexLock lock(blocks_.mutex());
      const engine::Heap& heap = engine().heap();
      freed = std::max(heap.pending_bytes(), heap.free_index().LargestBytes());
    }
    if (!of_host || waits == kMostWaits || freed < request.bytes) return false;
  }
  PoolEvents::Count(basis_.events.host_waits);
  const Status waited = grower_->AwaitDevice();
  // The later steps would wait as long, for no more memory.
  if (waited.code() == StatusCode::kDeadlineExceeded) {
    return OutOfMemory(waited.message(), " So there is ", OutOfMemoryFor(request).message());
  }
  if (waited.code() == StatusCode::kOutOfMemory) {
    request.failure = waited;
    return false;
  }
  COMMPOOL_TRY(waited);
  return true;
}

// Free segments that are too small for the request: of this pool, then of the others on the device. Holds no lock,
// because the others take theirs.
Result<bool> GrowingMode::ReleaseAndGrow(Request& request) {
  if (!segments_.room.FitsEmptyPlacement(request.bytes)) return false;
  if (!MovesPages()) ReleaseUnused(Wait::kYes);
  // Where the pool's own limit is in the way, memory of others does not help.
  request.others_help = segments_.room.FitsOwnLimit(request.bytes);
  const std::string budget = segments_.room.BudgetThatLacks(request.bytes);
  if (request.others_help) basis_.ReleaseOtherPools(budget);
  request.others_help = request.others_help && budget.empty();  // the process's other allocators are in no budget
  return Grow(request, Effort::kPressure);
}

Result<bool> GrowingMode::ReleasePagesAndGrow(Request& request) {
  if (!segments_.room.FitsEmptyPlacement(request.bytes) || !MovesPages() || ReleaseUnused(Wait::kYes) == 0)
    return false;
  return Grow(request, Effort::kPressure);
}

// Last: pools say exactly what they released, and others may be wrong. As long as they give, but a few times only.
Result<bool> GrowingMode::AskHolders(Request& request) {
  const int device = basis_.device->device();
  while (request.others_help && request.holders_asked++ < kMostRequests) {
    if (basis_.runtime.holders.Release(device, request.bytes) == 0) return false;
    if (COMMPOOL_TRY(Grow(request, Effort::kPressure))) return true;
  }
  return false;
}

// Why memory that is free for some request does not serve one of so many bytes; empty where there is not as much.
const char* GrowingMode::WhyNotFree(uint64_t bytes) const {
  MutexLock lock(blocks_.mutex());
  const engine::Counters counters = blocks_.engine().counters();
  const uint64_t of_graphs = counters.pending_bytes - blocks_.engine().heap().pending_bytes();
  if (of_graphs > 0 && counters.free_bytes >= bytes) return kInGraphs;
  if (counters.free_bytes - counters.pending_bytes < bytes) return "";
  const bool could_move = segments_.backing->row().movement != Movement::kNever && !MovesPages();
  return could_move ? kInPieces : "";
}

Status GrowingMode::OutOfMemoryFor(const Request& request) const {
  const std::string bytes = FormatBytes(request.bytes);
  if (request.part == engine::kCommonPart) {
    return OutOfMemory("no memory for ", bytes, " in ", request.failure.message(), WhyNotFree(request.bytes),
                       basis_.DescribeHolders());
  }
  return OutOfMemory("no idle memory for ", bytes, " in a capture, and ", request.failure.message(), ": ",
                     FormatBytes(blocks_.Ask(&engine::Engine::counters).free_bytes),
                     " are free, in use by streams or too small. Synchronise and reserve() before the capture",
                     basis_.DescribeHolders());
}

}  // namespace commpool::internal
