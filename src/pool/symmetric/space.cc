// The space of a symmetric pool: reserve, reclaim, trim and close, each a collective call.
#include <algorithm>
#include <optional>

#include "src/base/bytes.h"
#include "src/base/host_patience.h"
#include "src/pool/abandonment.h"
#include "src/pool/symmetric/symmetric_growth.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

namespace {

std::vector<engine::SegmentIndex> IndexesOf(const std::vector<SegmentToRegister>& segments) {
  std::vector<engine::SegmentIndex> indexes;
  for (const SegmentToRegister& segment : segments) indexes.push_back(segment.index);
  return indexes;
}

}  // namespace

Status SymmetricMode::CheckRoom(uint64_t segment_bytes, const Agreed& agreed) const {
  const std::string& title = parts_.basis.title;
  if (segment_bytes > agreed.least_memory_left) {
    return Status(StatusCode::kOutOfMemory, title + ": reserve of " + FormatBytes(segment_bytes) + ": rank " +
                                                std::to_string(agreed.rank_with_least_memory) + " has only " +
                                                FormatBytes(agreed.least_memory_left) + " left");
  }
  if (parts_.segments.FitsOwnLimit(segment_bytes)) return Status();
  return Status(StatusCode::kOutOfMemory, title + ": reserve of " + FormatBytes(segment_bytes) +
                                              " would exceed its limit of " +
                                              FormatBytes(parts_.basis.configuration.limit_bytes));
}

Status SymmetricMode::AddSegment(uint64_t bytes, const Agreed& agreed) {
  const uint64_t least = std::max(bytes, parts_.basis.configuration.segment_bytes);
  const std::optional<uint64_t> segment_bytes = CheckedRoundUp(least, agreed.granularity);
  if (!segment_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  parts_.basis.title + ": reserve of " + std::to_string(bytes) + " bytes overflows");
  }
  Status status = CheckRoom(*segment_bytes, agreed);
  if (!status.ok()) return status;
  const ContextGuard current = parts_.basis.MakeCurrent();
  SymmetricGrowth growth(parts_, collective_, engine_, *segment_bytes);
  return Grow(growth);
}

Status SymmetricMode::Reserve(uint64_t bytes) {
  MutexLock collective(parts_.collective);
  Status readiness = parts_.CheckOpen();
  if (readiness.ok() && bytes == 0) {
    readiness = Status(StatusCode::kInvalidArgument, parts_.basis.title + ": reserve of 0 bytes");
  }
  Result<Agreed> agreed = collective_.Begin(
      {.call = CollectiveCall::kReserve, .bytes = bytes, .readiness = readiness, .judge = registrar_.JudgeHeld()});
  if (!agreed.ok()) return agreed.status();
  {
    MutexLock lock(parts_.blocks.mutex());
    if (engine_->CanServe(bytes)) return Status();  // the same answer on every rank
  }
  if (!agreed->claims.ok()) return parts_.basis.Named(agreed->claims);
  return AddSegment(bytes, *agreed);
}

Result<uint64_t> SymmetricMode::Reclaim() {
  MutexLock collective(parts_.collective);
  const uint64_t before = parts_.blocks.counters().pending_bytes;
  Result<Agreed> agreed = collective_.Begin({.call = CollectiveCall::kReclaim, .readiness = parts_.CheckOpen()});
  if (!agreed.ok()) return agreed.status();
  return before - std::min(before, parts_.blocks.counters().pending_bytes);
}

Status SymmetricMode::DeregisterAll(const std::vector<engine::SegmentIndex>& segments) {
  Status first;
  for (const engine::SegmentIndex index : segments) {
    Status deregistered = parts_.registrations.DeregisterSegment(index);
    if (first.ok()) first = deregistered;
  }
  return first;
}

Status SymmetricMode::Unmap(const std::vector<engine::SegmentIndex>& segments, Addresses addresses,
                            uint64_t* released) {
  const ContextGuard current = parts_.basis.MakeCurrent();
  MutexLock growth(parts_.segments.growth());
  for (const engine::SegmentIndex index : segments) {
    Result<bool> gone = parts_.segments.ReleaseOne(index, addresses, released);
    if (!gone.ok()) return gone.status();
    if (!*gone) {
      return Status(StatusCode::kFailedPrecondition,
                    parts_.basis.title + ": another thread allocated during a collective call");
    }
  }
  return Status();
}

Result<uint64_t> SymmetricMode::Release(const std::vector<engine::SegmentIndex>& segments, UnmatchedFrees frees) {
  if (segments.empty()) return uint64_t{0};
  // Its steps hold two pointers: what a std::function keeps without asking the host.
  struct Steps {
    const std::vector<engine::SegmentIndex>& segments;
    UnmatchedFrees frees;
    uint64_t released = 0;
  } steps{segments, frees};
  const Status status = collective_.TearDown(
      [this, &steps]() COMMPOOL_UNCHECKED {
        if (steps.frees == UnmatchedFrees::kApply) ApplyOwnFrees();
        return DeregisterAll(steps.segments);
      },
      [this, &steps]() COMMPOOL_UNCHECKED { return Unmap(steps.segments, Addresses::kFree, &steps.released); });
  if (!status.ok()) return status;
  return steps.released;
}

Result<uint64_t> SymmetricMode::Trim(uint64_t keep_bytes) {
  MutexLock collective(parts_.collective);
  Result<Agreed> agreed =
      collective_.Begin({.call = CollectiveCall::kTrim, .bytes = keep_bytes, .readiness = parts_.CheckOpen()});
  if (!agreed.ok()) return agreed.status();
  const std::vector<engine::SegmentIndex> chosen = Insist([&] {
    std::vector<engine::SegmentIndex> segments;
    MutexLock lock(parts_.blocks.mutex());
    uint64_t reserved = engine_->counters().reserved_bytes.current;
    std::vector<engine::SegmentIndex> free = engine_->WhollyFreeSegments();
    for (; reserved > keep_bytes && !free.empty(); free.pop_back()) {
      segments.push_back(free.back());
      reserved -= parts_.segments.BytesOf(free.back());
    }
    return segments;
  });
  return Release(chosen, UnmatchedFrees::kKeep);
}

Status SymmetricMode::CheckNoLiveBlocks(const char* call) const {
  const uint64_t live = parts_.blocks.counters().allocated_blocks.current;
  if (live == 0) return Status();
  return Status(StatusCode::kFailedPrecondition,
                parts_.basis.title + " still has " + std::to_string(live) + " live blocks: free them before " + call);
}

void SymmetricMode::ApplyOwnFrees() {
  MutexLock lock(parts_.blocks.mutex());
  engine_->ApplyFrees(engine_->LocallyFreed());
}

Status SymmetricMode::SettleAlone() {
  collective_.CollectGraphs();
  Status status = WaitForDeviceAfterLoss(parts_);
  if (status.ok()) ApplyOwnFrees();
  return status;
}

void SymmetricMode::EndClose() {
  losses_.Stop();
  collective_.End();
  parts_.life.EndClose();
}

Status SymmetricMode::CloseAlone() {
  Status status = parts_.basis.device->health().first_error();
  if (status.ok()) status = CheckNoLiveBlocks("close()");
  if (status.ok()) status = parts_.captures.CheckNoneLive();
  if (!status.ok()) return status;
  parts_.life.BeginClose();
  status = SettleAlone();
  if (!status.ok()) return parts_.basis.Named(status.under("close"));
  uint64_t released = 0;
  status = Unmap(IndexesOf(parts_.segments.List()), Addresses::kKeep, &released);
  if (status.ok()) status = parts_.segments.ReleaseSetAside();
  if (!status.ok()) return status;
  EndClose();
  return Status();
}

Status SymmetricMode::Close() {
  MutexLock collective(parts_.collective);
  if (parts_.life.closed()) return Status();
  if (ties_.load(std::memory_order_acquire) == Ties::kAbandoned && parts_.registrations.empty()) return CloseAlone();
  Status readiness = parts_.basis.device->health().first_error();
  if (readiness.ok()) readiness = CheckNoLiveBlocks("close()");
  Result<Agreed> agreed = collective_.Begin({.call = CollectiveCall::kClose, .readiness = readiness});
  if (!agreed.ok()) return agreed.status();
  parts_.life.BeginClose();
  const std::vector<engine::SegmentIndex> all = Insist([&] { return IndexesOf(parts_.segments.List()); });
  Result<uint64_t> released = Release(all, UnmatchedFrees::kApply);
  if (!released.ok()) return released.status();
  Status status = parts_.registrations.RemoveAll();
  EndClose();
  return status;
}

}  // namespace commpool::internal
