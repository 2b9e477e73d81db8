// SymmetricMode: allocations, frees, captures and sleep. reserve.cc, registering.cc and epoch.cc have the collective
// calls.
#include "src/library/pool/symmetric/symmetric_mode.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"
#include "src/library/base/try.h"
#include "src/library/driver/graph_handles.h"

namespace commpool::internal {

namespace {

// The streams of these waits that have no fence yet: HandOut records an event on each.
std::vector<StreamKey> StreamsOf(const std::vector<engine::StreamUse>& waits) {
  std::vector<StreamKey> streams;
  for (const engine::StreamUse& use : waits) {
    if (use.fence == engine::kNoFence) streams.push_back(use.stream);
  }
  return streams;
}

// What ranks compare, because all must ask for the same, and all map other ranks' memory or none.
// Each part has bits of its own, so requests that differ have different numbers.
uint64_t NumberOf(const SleepRequest& request, bool maps_peers) {
  return 8 * (maps_peers ? 1 : 0) + 4 * static_cast<uint64_t>(request.keep) + static_cast<uint64_t>(request.graphs);
}

constexpr const char* kStale = "sleep would leave graphs with collectives stale (graphs = DISCARDED accepts that)";

// Graphs that nobody announced may name the windows' places, unless the program says otherwise.
Status PlanReturn(RegistrationSet& registrations, const SleepRequest& request, std::vector<ReturnReport>& plan) {
  if (!DependOnPlaces(request.graphs)) {
    // An earlier sleep may have left a plan, which this one must not follow.
    registrations.ForgetReturn();
    return Status();
  }
  Result<std::vector<ReturnReport>> planned = registrations.PlanReturn();
  if (planned.ok()) plan = std::move(*planned);
  return planned.status().under(kStale);
}

}  // namespace

Result<SymmetricMode*> SymmetricMode::Of(const Pool& pool, const char* call) {
  if (SymmetricMode* const mode = pool.mode().AsSymmetric()) return mode;
  return NotSupported(call, ": ", pool.basis().title, " is not symmetric and has no home: it has no ranks");
}

// Calls nobody: Open makes the pool known to the other ranks.
SymmetricMode::SymmetricMode(const PoolParts& parts, const Communicator& home)
    : PoolMode(parts), home_(home), home_handle_(home.handle), collective_(parts), domains_(home.ranks) {}

// The lock is free here, and is taken for the checks of locks alone.
Status SymmetricMode::Open(std::unique_ptr<AgreementChannel> channel, const Status& readiness) {
  MutexLock collective(basis_.collective);
  collective_.MoveTo(std::move(channel));
  return BeginEpoch(CollectiveCall::kCreate, readiness);
}

// The engine adds each allocation to the sequence, one that fails as well: ranks that are all exhausted stay alike. So
// everything that only this rank knows is checked before the engine is asked, or acts on the block after it.
Result<CUdeviceptr> SymmetricMode::Allocate(uint64_t bytes, StreamKey stream) {
  COMMPOOL_TRY(basis_.Named(collective_.CheckAlike()));
  if (IsUnpromised(stream) && !IsPerThread(stream) && basis_.configuration.frees == engine::FreeOrder::kOrdered) {
    return FailedPrecondition(basis_.title,
                              " has ordered frees, so other streams reuse at once what this one frees, and a stream "
                              "that may be destroyed meanwhile cannot be waited for: make the pool with the option "
                              "streams = outlive, and call release_stream before a stream is destroyed");
  }
  // Before the engine is asked: an error here leaves the sequence as it was.
  const engine::Part part = COMMPOOL_TRY(captures_.PartOf(stream));
  engine::Served served;
  Status full;
  std::optional<RecordingStreams::Scope> recording;
  {
    MutexLock lock(blocks_.mutex());
    COMMPOOL_TRY(basis_.CheckOpen());  // under the lock: a sleep or a close looks at the blocks after it has begun
    Result<engine::Outcome> outcome = engine().Allocate(bytes, stream, part);
    collective_.Publish();
    if (!outcome.ok()) return basis_.Named(outcome.status());
    if (const engine::Grow* grow = std::get_if<engine::Grow>(&*outcome)) {
      full = Failure(StatusCode::kExhausted, basis_.title, " ", DescribeExhaustion(bytes, grow->bytes));
    } else {
      served = std::move(std::get<engine::Served>(*outcome));
    }
    // Under the same hold of the lock: until the waits are made, no stream in them may be forgotten (RecordingStreams).
    if (!served.waits.empty()) recording.emplace(basis_.recording_streams, StreamsOf(served.waits));
  }
  // Without the lock: tools hear of the span.
  if (!full.ok()) return basis_.record.Began(recording::SpanKind::kSearch, "search", bytes).Ended(full);
  if (part != engine::kCommonPart) {
    const engine::Served asked = served;
    Status status = AwaitOutside(part, &served.waits);
    if (!status.ok()) {
      // The sequence has the allocation already, so the block is freed like any other.
      blocks_.TakeBackUnserved(asked);
      return status;
    }
  }
  const Waits waits = part == engine::kCommonPart ? Waits::kOutside : Waits::kInCapture;
  // No cache: which thread frees and takes first is not the same on every rank (rule 4).
  const CUdeviceptr address = COMMPOOL_TRY(blocks_.HandOut(served, bytes, stream, Caching::kNo, waits));
  if (address != 0) return address;
  return basis_.Named(
      FailedPrecondition("a stream that captures used the block before, so no other stream can wait for it: "
                         "synchronise that stream before its capture, and reclaim()"));
}

// An event that exists is waited for. Else a new one behind all of the stream's work, where an event can be recorded on
// that stream.
Status SymmetricMode::Await(const engine::StreamUse& use) const {
  // A stream without a fence captures nothing here: the caller has looked.
  FenceTable& fences = basis_.fences();
  if (use.fence != engine::kNoFence) return fences.Await(use.fence, basis_.deadline_ms());
  if (!IsReachable(use.stream)) {
    return FailedPrecondition(
        "the block was used on another thread's default stream, or on one that may be gone (option streams), "
        "which a capture cannot wait for: synchronise "
        "the device before the capture and reclaim()");
  }
  const FenceId fence = COMMPOOL_TRY(fences.Record(use.stream));
  Status status = fences.Await(fence, basis_.deadline_ms());
  fences.Retire(fence);
  return status;
}

// The waits of the host before a capture gets a block. The graph owns it until the graph is gone: even if the program
// frees the block before, this rank does not offer it to the other ranks (Reason::kGraph). A wait on the device for
// work outside of the capture would pull that work into the graph, or fail. So the host waits.
Status SymmetricMode::AwaitOutside(engine::Part part, std::vector<engine::StreamUse>* waits) const {
  if (waits->empty()) return Status();
  // The calls below are made while a stream captures, which allows them in relaxed mode only.
  const RelaxedCapture relaxed(basis_.driver);
  PoolEvents::Count(basis_.events.host_waits);
  std::vector<engine::StreamUse> inside;
  for (const engine::StreamUse& use : *waits) {
    // A use by a stream of this capture needs no wait of the host.
    const engine::Part user = COMMPOOL_TRY(captures_.PartOf(use.stream));
    if (use.fence == engine::kNoFence && user == part) {
      inside.push_back(use);
      continue;
    }
    if (use.fence == engine::kNoFence && user != engine::kCommonPart) {
      return FailedPrecondition(basis_.title,
                                ": the block was used on a stream of another capture, which this one cannot wait for");
    }
    COMMPOOL_TRY(basis_.Named(Await(use)));
  }
  *waits = std::move(inside);
  return Status();
}

// reclaim() is named only where a segment is large enough for the block.
std::string SymmetricMode::DescribeExhaustion(uint64_t requested, uint64_t needed) const {
  const engine::Counters counters = engine().counters();
  if (counters.reserved_bytes.current == 0) {
    return "has no memory yet: on every rank reserve what a whole step needs, at once, such as 2 GiB (" +
           FormatBytes(requested) + " were asked for now; statistics tell the peak)";
  }
  const std::string text = "has no free block of " + FormatBytes(requested) + ": " +
                           FormatBytes(counters.reserved_bytes.current) + " are reserved, the largest free block is " +
                           FormatBytes(counters.largest_free_block_bytes) + ". On every rank: reserve(" +
                           std::to_string(needed) + "), which is " + FormatBytes(needed);
  const std::vector<SegmentToRegister> segments = segments_.book.List();
  const bool frees_could_do =
      basis_.configuration.frees == engine::FreeOrder::kDeferred &&
      std::any_of(segments.begin(), segments.end(), [&](const auto& segment) { return segment.bytes >= needed; });
  return frees_could_do ? text + ", or reclaim() once every rank has freed as much in one piece" : text;
}

// Ordered frees are calls of the sequence. Deferred ones are not: they come at another moment on each rank. Only a
// collective call may shrink the pool.
void SymmetricMode::AfterFree() {
  MutexLock lock(blocks_.mutex());
  collective_.Publish();
}

// Without a lock: both wait for threads of the link, which may be in functions of this pool.
void SymmetricMode::StopListening() {
  collective_.StopPublishing();
  losses_.Stop();
}

// Destroying is no collective call: other ranks may still use windows of this rank's memory.
void SymmetricMode::AfterDestroy() {
  StopListening();
  // A pool that was closed has none.
  const uint64_t reserved = blocks_.reserved_bytes();
  if (reserved == 0) return;
  // Only a collective call may end windows, and registered memory must not be unmapped.
  Log(LogLevel::kWarning, basis_.title + " was destroyed without close(): " + FormatBytes(reserved) +
                              " stay mapped until the process ends");
}

// The order in which windows will come back is found before the ranks agree, because they compare it. Peers' mappings
// go first and come back last, and come back too where the pool stays awake.
Status SymmetricMode::Sleep(const SleepRequest& request, OtherPoolsOfCall others) {
  basis_.collective.AssertHeld();
  Status readiness = Sleeping::CheckMaySleep(basis_, segments_, request);
  DomainReport report;
  if (readiness.ok()) readiness = basis_.Named(PlanReturn(segments_.registrations, request, report.returns));
  const ReportJudge judge = [](const std::vector<DomainReport>& reports) -> Findings {
    return {CheckSameReturns(reports).under(kStale)};
  };
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kSleep,
                                  .bytes = NumberOf(request, maps_peers_),
                                  .readiness = readiness,
                                  .report = std::move(report),
                                  .judge = judge}));
  // Peers' imports would keep the memory.
  if (maps_peers_) COMMPOOL_TRY(UnmapPeers());
  // Each step of falling asleep ends with an agreement, so all ranks sleep or none.
  const Status slept = Sleeping(*this, collective_.Runner()).FallAsleep(request, others);
  // Awake after a failure on any rank: the peers' mappings come back too.
  if (slept.ok() || !maps_peers_ || basis_.life.asleep()) return slept;
  const Status again = MapLacking();
  return again.ok() ? slept : Failure(slept.code(), slept.message(), "; then ", again.message());
}

// Every rank compares what it is asked, before any memory is made.
Status SymmetricMode::Wake(const SleepRequest& request, OtherPoolsOfCall others) {
  basis_.collective.AssertHeld();
  // After a loss no communicator is left to register with. The pool wakes only so that the program can save what was
  // kept.
  if (HasNoCommunicator()) {
    COMMPOOL_TRY(Sleeping::CheckMayWake(basis_, request));
    return Sleeping(*this, Alone(basis_, "wake")).WakeUp(request, others);
  }
  const Status readiness = Sleeping::CheckMayWake(basis_, request);
  COMMPOOL_TRY(collective_.Begin({.call = CollectiveCall::kWake,
                                  .bytes = NumberOf(request, maps_peers_),
                                  .readiness = readiness,
                                  .judge = JudgeHeld()}));
  COMMPOOL_TRY(Sleeping(*this, collective_.Runner()).WakeUp(request, others));
  if (!maps_peers_) return Status();
  return MapLacking().under("it is awake, without the addresses of other ranks: call map_peers() again");
}

// Without a home the pool publishes nothing. Once its registrations are gone too, its calls ask no other rank.
Status SymmetricMode::AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) {
  COMMPOOL_TRY(PoolMode::AbandonCommunicator(communicator, life));
  if (communicator != home_handle_.load(std::memory_order_acquire)) return Status();
  // Other threads read it: from here on the pool has no home.
  home_handle_.store(nullptr, std::memory_order_release);
  collective_.StopPublishing();
  return Status();
}

}  // namespace commpool::internal
