#include "src/pool/symmetric_pool.h"

#include <optional>
#include <random>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/log.h"
#include "src/driver/graph_handles.h"

namespace commpool::internal {

namespace {

engine::SymmetricEngine MakeEngine(const PoolParts& parts) {
  return engine::SymmetricEngine({.alignment = parts.configuration.alignment_bytes,
                                  .granularity = parts.backing->granularity(),
                                  .segment_bytes = parts.configuration.segment_bytes},
                                 parts.configuration.frees);
}

engine::SequenceCall SequenceCallOf(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::kReserve:
      return engine::SequenceCall::kReserve;
    case CollectiveCall::kReclaim:
    case CollectiveCall::kVerify:  // never noted
      return engine::SequenceCall::kReclaim;
    case CollectiveCall::kTrim:
    case CollectiveCall::kClose:
      return engine::SequenceCall::kTrim;
    case CollectiveCall::kCreate:
    case CollectiveCall::kRegister:
      return engine::SequenceCall::kRegister;
    case CollectiveCall::kDeregister:
      return engine::SequenceCall::kDeregister;
  }
  return engine::SequenceCall::kReserve;
}

// What placement and growth depend on: the same on every rank, or their offsets and decisions would part.
std::string DescribeSharedOptions(const PoolConfiguration& configuration) {
  return std::string("backing ") + Name(configuration.backing.kind) + ", alignment_bytes " +
         std::to_string(configuration.alignment_bytes) + ", segment_bytes " +
         std::to_string(configuration.segment_bytes) + ", limit_bytes " + std::to_string(configuration.limit_bytes) +
         ", frees " + (configuration.frees == engine::FreeOrder::kOrdered ? "ordered" : "deferred");
}

// Those that the waits are recorded on: a fence has been.
std::vector<StreamKey> StreamsOf(const std::vector<engine::StreamUse>& waits) {
  std::vector<StreamKey> streams;
  for (const engine::StreamUse& use : waits) {
    if (use.fence == engine::kNoFence) streams.push_back(use.stream);
  }
  return streams;
}

// The engine's last calls as texts, for a rank that differs.
class EngineHistory : public CallHistory {
 public:
  EngineHistory(std::vector<TracedCall> calls, Divergence& divergence)
      : calls_(std::move(calls)), divergence_(divergence) {}
  std::vector<TracedCall> LastCalls() const override { return calls_; }
  void NoteDivergence(const Status& difference) const override { divergence_.Note(difference); }

  static EngineHistory Of(const engine::SequenceLog& log, Divergence& divergence) {
    std::vector<TracedCall> calls;
    const uint64_t first = log.count() > engine::SequenceLog::kKept ? log.count() - engine::SequenceLog::kKept : 0;
    for (uint64_t number = first; number < log.count(); ++number) {
      const auto entry = log.Entry(number);
      if (entry) calls.push_back({number, entry->hash_after, Describe(*entry)});
    }
    return EngineHistory(std::move(calls), divergence);
  }

 private:
  std::vector<TracedCall> calls_;
  Divergence& divergence_;
};

}  // namespace

SymmetricPool::SymmetricPool(PoolParts parts, const Communicator& home, std::unique_ptr<AgreementChannel> channel)
    : PoolBase(std::move(parts), MakeEngine(parts), RegistrationKind::kWindow),
      home_(home),
      channel_(std::move(channel)),
      domains_(home.ranks) {}

uint64_t SymmetricPool::ReservedBytes() const {
  MutexLock lock(mutex_);
  return engine_.counters().reserved_bytes.current;
}

Intent SymmetricPool::MakeIntent(CollectiveCall call, uint64_t bytes) const {
  Intent intent{.call = call, .bytes = bytes, .granularity = segments_.backing().granularity()};
  intent.nccl_version = driver_.nccl.version;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ContextGuard guard(driver_, device_->context());
  const bool counts = segments_.backing().placement().kind == Placement::Kind::kDevice &&
                      driver_.cuda.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
  intent.memory_left = counts ? free_bytes : UINT64_MAX;

  MutexLock lock(mutex_);
  intent.segment_index = engine_.SegmentsEver();
  intent.live_blocks = engine_.counters().allocated_blocks.current;
  intent.sequence_count = engine_.log().count();
  intent.sequence_hash = engine_.log().hash();
  intent.freed = engine_.LocallyFreed();
  KeepGraphsBlocks(&intent.freed);
  return intent;
}

Result<Agreed> SymmetricPool::Agree(CollectiveCall call, uint64_t bytes, const Status& readiness, DomainClaim claim) {
  if (channel_ == nullptr) return Status(StatusCode::kFailedPrecondition, Title() + " is closed");  // on every rank
  if (company() != nullptr && company()->IsOfThisThread()) return company()->Incomplete(name(), 1);
  const std::optional<RelaxedCapture> relaxed =
      captures_.any_open() ? std::make_optional<RelaxedCapture>(driver_) : std::nullopt;
  const Status ready = readiness.ok() ? CheckCaptures(call) : readiness;
  CollectGraphs();
  PollFences();
  Intent intent = MakeIntent(call, bytes);
  if (call == CollectiveCall::kCreate) intent.options = DescribeSharedOptions(configuration_);
  intent.readiness = ready;
  intent.divergence = divergence_.status();
  for (const Communicator& held : registrations_.Communicators()) claim.held.push_back(held.number);
  intent.claim = Encode(claim);
  const EngineHistory history = [&] {
    MutexLock lock(mutex_);
    return EngineHistory::Of(engine_.log(), divergence_);
  }();
  Result<Agreed> agreed = AgreeOnIntent(*channel_, intent, history);
  if (!agreed.ok()) return Status(agreed.status().code(), Title() + ": " + agreed.status().message());
  return agreed;
}

Result<Agreed> SymmetricPool::Begin(CollectiveCall call, uint64_t bytes, const Status& readiness, DomainClaim claim) {
  Result<Agreed> agreed = Agree(call, bytes, readiness, std::move(claim));
  if (!agreed.ok()) return agreed;
  MutexLock lock(mutex_);
  engine_.ApplyFrees(agreed->freed);
  engine_.NoteCollective(SequenceCallOf(call), bytes);
  Publish();
  return agreed;
}

Status SymmetricPool::Open(const Status& readiness) {
  MutexLock collective(collective_);
  std::random_device random;
  Result<Agreed> agreed =
      Begin(CollectiveCall::kCreate, 0, readiness, {.number = (uint64_t{random()} << 32) | random() | 1});
  if (!agreed.ok()) return agreed.status();
  const Result<std::vector<DomainClaim>> claims = DecodeClaims(agreed->claims);
  if (!claims.ok()) return claims.status();
  home_id_ = claims->front().number.value_or(0);
  domains_.AddHome();
  std::unique_ptr<Publisher> publisher =
      Publisher::Start(home_.rank, channel_->TakeBackgroundConnections(), divergence_);
  {
    MutexLock lock(mutex_);
    publisher_ = std::move(publisher);
  }
  return registrations_.Add(home_, {});
}

void SymmetricPool::Publish() {
  if (publisher_ != nullptr) publisher_->Offer(engine_.log());
}

void SymmetricPool::StopPublishing() {
  std::unique_ptr<Publisher> publisher;  // ends after the lock
  MutexLock lock(mutex_);
  publisher = std::move(publisher_);
}

Status SymmetricPool::Verify() {
  MutexLock collective(collective_);
  return Agree(CollectiveCall::kVerify, 0, CheckOpen()).status();
}

Result<CUdeviceptr> SymmetricPool::Allocate(uint64_t bytes, StreamKey stream) {
  Status open = CheckOpen();
  if (open.ok() && divergence_.known()) {
    const Status difference = divergence_.status();
    open = Status(difference.code(), Title() + ": " + difference.message());
  }
  if (!open.ok()) return Failed(open);
  const Result<engine::Part> part = PartOf(stream);
  if (!part.ok()) return Failed(Status(part.status().code(), Title() + ": " + part.status().message()));
  engine::Served served;
  Recordings::Scope recording;
  {
    MutexLock lock(mutex_);
    const engine::Sequence sequence = engine_.NextSequence();
    Result<engine::Outcome> outcome = engine_.Allocate(bytes, stream);
    Publish();
    if (!outcome.ok()) return Failed(Status(outcome.status().code(), Title() + ": " + outcome.status().message()));
    if (const engine::Grow* grow = std::get_if<engine::Grow>(&*outcome)) {
      return Failed(Status(StatusCode::kExhausted, Title() + " " + Describe(WhyExhausted(bytes, grow->bytes))));
    }
    served = std::move(std::get<engine::Served>(*outcome));
    recording = recordings_.Begin(StreamsOf(served.waits));
    if (*part != engine::kCommonPart) graph_blocks_[served.address] = {.sequence = sequence, .part = *part};
  }
  Result<CUdeviceptr> address = *part == engine::kCommonPart ? FinishServing(served, bytes, stream)
                                                             : FinishInCapture(std::move(served), bytes, stream, *part);
  if (!address.ok()) return Failed(address.status());
  return address;
}

Exhaustion SymmetricPool::WhyExhausted(uint64_t requested, uint64_t needed) const {
  const engine::Counters counters = engine_.counters();
  Exhaustion exhaustion{.requested_bytes = requested,
                        .needed_bytes = needed,
                        .reserved_bytes = counters.reserved_bytes.current,
                        .largest_free_block = counters.largest_free_block,
                        .frees = configuration_.frees};
  for (const SegmentToRegister& segment : segments_.List()) {
    exhaustion.largest_segment = std::max(exhaustion.largest_segment, segment.bytes);
  }
  return exhaustion;
}

Status SymmetricPool::CheckRoom(uint64_t segment_bytes, const Agreed& agreed) const {
  if (segment_bytes > agreed.least_memory_left) {
    return Status(StatusCode::kOutOfMemory, Title() + ": reserve of " + FormatBytes(segment_bytes) + ": rank " +
                                                std::to_string(agreed.rank_with_least_memory) + " has only " +
                                                FormatBytes(agreed.least_memory_left) + " left");
  }
  const std::optional<uint64_t> after = CheckedAdd(ReservedBytes(), segment_bytes);
  if (after && *after <= configuration_.limit_bytes) return Status();
  return Status(StatusCode::kOutOfMemory, Title() + ": reserve of " + FormatBytes(segment_bytes) +
                                              " would exceed its limit of " + FormatBytes(configuration_.limit_bytes));
}

Result<std::unique_ptr<Segment>> SymmetricPool::MakeSegment(uint64_t bytes) {
  MutexLock growth(growth_);
  const Status room = TakeDeviceRoom(bytes);
  if (!room.ok()) return room;
  Result<std::unique_ptr<Segment>> segment = segments_.Make(bytes, peers_);
  if (!segment.ok()) GiveRoomBack(bytes);
  return segment;
}

void SymmetricPool::DropSegment(std::unique_ptr<Segment> segment) {
  const uint64_t bytes = segment->bytes();
  segment.reset();
  GiveRoomBack(bytes);
}

Status SymmetricPool::AddMemory(uint64_t segment_bytes) {
  ContextGuard guard(driver_, device_->context());
  Result<std::unique_ptr<Segment>> segment = MakeSegment(segment_bytes);
  Status status = AgreeOnOutcome(*channel_, segment.status(), "making a segment of " + FormatBytes(segment_bytes));
  if (!status.ok()) {
    if (segment.ok()) DropSegment(std::move(*segment));
    return status;
  }

  uint32_t index = 0;
  {
    MutexLock lock(mutex_);
    index = engine_.SegmentsEver();
  }
  const SegmentToRegister range{index, (*segment)->address(), (*segment)->bytes()};
  const Status mine = registrations_.RegisterSegment(range);
  status = AgreeOnOutcome(*channel_, mine, "registering a segment of " + FormatBytes(segment_bytes));
  if (!status.ok()) {
    // Where only another rank failed, this one's windows go again; all ranks have before any unmaps.
    const Status undone = registrations_.DeregisterSegment(index);
    const Status all_undone = AgreeOnOutcome(*channel_, undone, "undoing the registration");
    if (all_undone.ok()) {
      DropSegment(std::move(*segment));
    } else {
      (*segment)->Abandon();  // and its room stays taken: the memory is there until the process ends
    }
    return status;
  }
  MutexLock growth(growth_);
  Adopt(std::move(*segment));
  return Status();
}

Status SymmetricPool::Grow(uint64_t bytes, const Agreed& agreed) {
  const uint64_t least = std::max(bytes, configuration_.segment_bytes);
  const std::optional<uint64_t> segment_bytes = CheckedRoundUp(least, agreed.granularity);
  if (!segment_bytes) {
    return Status(StatusCode::kInvalidArgument, Title() + ": reserve of " + std::to_string(bytes) + " bytes overflows");
  }
  Status status = CheckRoom(*segment_bytes, agreed);
  if (!status.ok()) return status;
  status = AddMemory(*segment_bytes);
  if (!status.ok()) return Status(status.code(), Title() + ": " + status.message());
  return Status();
}

Status SymmetricPool::Reserve(uint64_t bytes) {
  MutexLock collective(collective_);
  Status readiness = CheckOpen();
  if (readiness.ok() && bytes == 0) {
    readiness = Status(StatusCode::kInvalidArgument, Title() + ": reserve of 0 bytes");
  }
  Result<Agreed> agreed = Begin(CollectiveCall::kReserve, bytes, readiness);
  if (!agreed.ok()) return agreed.status();
  {
    MutexLock lock(mutex_);
    if (engine_.CanServe(bytes)) return Status();  // the same answer on every rank
  }
  const Status held = CheckHeld(*agreed).status();
  if (!held.ok()) return held;
  return Grow(bytes, *agreed);
}

Result<uint64_t> SymmetricPool::Reclaim() {
  MutexLock collective(collective_);
  uint64_t before = 0;
  {
    MutexLock lock(mutex_);
    before = engine_.counters().pending_bytes;
  }
  Result<Agreed> agreed = Begin(CollectiveCall::kReclaim, 0, CheckOpen());
  if (!agreed.ok()) return agreed.status();
  MutexLock lock(mutex_);
  return before - std::min(before, engine_.counters().pending_bytes);
}

Status SymmetricPool::Unmap(const std::vector<engine::SegmentIndex>& indexes, uint64_t* released) {
  ContextGuard guard(driver_, device_->context());
  MutexLock growth(growth_);
  for (const engine::SegmentIndex index : indexes) {
    std::unique_ptr<Segment> segment = TakeIfIdle(index);
    if (segment == nullptr) {
      return Status(StatusCode::kFailedPrecondition, Title() + ": another thread allocated during a collective call");
    }
    *released += segment->bytes();
    GiveRoomBack(segment->bytes());
    Status status = segment->Free();
    if (!status.ok()) return status;
  }
  return Status();
}

Result<uint64_t> SymmetricPool::GiveBack(const std::vector<engine::SegmentIndex>& indexes, UnmatchedFrees frees) {
  if (indexes.empty()) return uint64_t{0};
  uint64_t released = 0;
  const Status status = TearDown(
      [&] {
        if (frees == UnmatchedFrees::kApply) {
          MutexLock lock(mutex_);
          engine_.ApplyFrees(engine_.LocallyFreed());
        }
        Status first;
        for (const engine::SegmentIndex index : indexes) {
          Status deregistered = registrations_.DeregisterSegment(index);
          if (first.ok()) first = deregistered;
        }
        return first;
      },
      [&] { return Unmap(indexes, &released); });
  if (!status.ok()) return status;
  return released;
}

Result<uint64_t> SymmetricPool::Trim(uint64_t keep_bytes) {
  MutexLock collective(collective_);
  Result<Agreed> agreed = Begin(CollectiveCall::kTrim, keep_bytes, CheckOpen());
  if (!agreed.ok()) return agreed.status();
  std::vector<engine::SegmentIndex> chosen;
  {
    MutexLock lock(mutex_);
    uint64_t reserved = engine_.counters().reserved_bytes.current;
    std::vector<engine::SegmentIndex> free = engine_.WhollyFreeSegments();
    for (; reserved > keep_bytes && !free.empty(); free.pop_back()) {
      chosen.push_back(free.back());
      reserved -= segments_.At(free.back()).bytes;
    }
  }
  return GiveBack(chosen, UnmatchedFrees::kKeep);
}

Status SymmetricPool::Close() {
  MutexLock collective(collective_);
  if (channel_ == nullptr) return Status();  // closed before
  const uint64_t live = [&] {
    MutexLock lock(mutex_);
    return engine_.counters().allocated_blocks.current;
  }();
  Status readiness = device_->health().first_error();
  if (readiness.ok() && live != 0) {
    readiness = Status(StatusCode::kFailedPrecondition,
                       Title() + " still has " + std::to_string(live) + " live blocks: free them before close()");
  }
  Result<Agreed> agreed = Begin(CollectiveCall::kClose, 0, readiness);
  if (!agreed.ok()) return agreed.status();
  open_ = false;
  std::vector<engine::SegmentIndex> all;
  for (const SegmentToRegister& segment : Segments()) all.push_back(segment.index);
  Result<uint64_t> released = GiveBack(all, UnmatchedFrees::kApply);
  if (!released.ok()) return released.status();
  Status status = registrations_.RemoveAll();
  channel_.reset();
  StopPublishing();
  return status;
}

void SymmetricPool::Retire() {
  open_ = false;
  retired_ = true;
  StopPublishing();
  const uint64_t reserved = ReservedBytes();
  if (reserved == 0) return;
  // Windows may only be ended collectively, and nothing that is registered may be unmapped.
  Log(LogLevel::kWarning,
      Title() + " was destroyed without close(): " + FormatBytes(reserved) + " stay mapped until the process ends");
}

void SymmetricPool::Abandon() {
  StopPublishing();
  PoolBase::Abandon();
}

}  // namespace commpool::internal
