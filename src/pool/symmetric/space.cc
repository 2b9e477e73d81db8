// The space of a symmetric pool: reserve, reclaim, trim and close, each a collective call.
#include <algorithm>
#include <optional>

#include "src/base/bytes.h"
#include "src/base/host_failure.h"
#include "src/base/host_patience.h"
#include "src/pool/symmetric/symmetric_mode.h"

namespace commpool::internal {

Status SymmetricMode::CheckRoom(uint64_t segment_bytes, const Agreed& agreed) const {
  const std::string& title = basis_.title;
  if (segment_bytes > agreed.least_memory_left) {
    return Status(StatusCode::kOutOfMemory, title + ": reserve of " + FormatBytes(segment_bytes) + ": rank " +
                                                std::to_string(agreed.rank_with_least_memory) + " has only " +
                                                FormatBytes(agreed.least_memory_left) + " left");
  }
  if (segments_.FitsOwnLimit(segment_bytes)) return Status();
  return Status(StatusCode::kOutOfMemory, title + ": reserve of " + FormatBytes(segment_bytes) +
                                              " would exceed its limit of " +
                                              FormatBytes(basis_.configuration.limit_bytes));
}

Status SymmetricMode::MakeSegment(uint64_t bytes, NewSegments* made) {
  segments_.collective().AssertHeld();
  const Status before = collective_.channel().FailureBefore();
  if (!before.ok()) return before;
  MutexLock growth(segments_.growth());
  Result<Room> room = segments_.TakeRoom(bytes);
  if (!room.ok()) return room.status();
  Result<NewSegment> segment = segments_.Make(bytes, std::move(*room));
  if (!segment.ok()) return segment.status();
  made->push_back(std::move(*segment));
  return Status();
}

Status SymmetricMode::AddSegment(uint64_t bytes, const Agreed& agreed) {
  const uint64_t least = std::max(bytes, basis_.configuration.segment_bytes);
  const std::optional<uint64_t> segment_bytes = CheckedRoundUp(least, agreed.granularity);
  if (!segment_bytes) {
    return Status(StatusCode::kInvalidArgument,
                  basis_.title + ": reserve of " + std::to_string(bytes) + " bytes overflows");
  }
  Status status = CheckRoom(*segment_bytes, agreed);
  if (!status.ok()) return status;
  const ContextGuard current = basis_.MakeCurrent();
  const std::string what = Insist([&] { return " a segment of " + FormatBytes(*segment_bytes); });
  NewSegments made;
  status = collective_.Run({.name = Insist([&] { return "making" + what; }).c_str(),
                            .act = [&] { return MakeSegment(*segment_bytes, &made); }});
  if (!status.ok()) return status;
  engine::SegmentIndex index = 0;
  {
    MutexLock lock(blocks_.mutex());
    index = engine().SegmentsEver();
  }
  status = collective_.Run(
      {.name = Insist([&] { return "registering" + what; }).c_str(),
       // Windows with every communicator.
       .act =
           [&] {
             segments_.collective().AssertHeld();
             const Status before = collective_.channel().FailureBefore();
             if (!before.ok()) return before;
             return segments_.registrations().RegisterSegment({index, made.front()->address(), made.front()->bytes()});
           },
       // This rank's windows go again, and all ranks' have before any unmaps.
       .undo =
           [&](const Status&) {
             segments_.collective().AssertHeld();
             const Status undone = Attempt([&] { return segments_.registrations().DeregisterSegment(index); });
             if (!collective_.AllUndone(undone)) segments_.SetAside(std::move(made));
           }});
  if (!status.ok()) return status;
  MutexLock growth(segments_.growth());
  segments_.Adopt(std::move(made.front()));
  return Status();
}

Status SymmetricMode::Reserve(uint64_t bytes) {
  MutexLock collective(segments_.collective());
  Status readiness = basis_.CheckOpen();
  if (readiness.ok() && bytes == 0) {
    readiness = Status(StatusCode::kInvalidArgument, basis_.title + ": reserve of 0 bytes");
  }
  Result<Agreed> agreed = collective_.Begin(
      {.call = CollectiveCall::kReserve, .bytes = bytes, .readiness = readiness, .judge = registrar_.JudgeHeld()});
  if (!agreed.ok()) return agreed.status();
  {
    MutexLock lock(blocks_.mutex());
    if (engine().CanServe(bytes)) return Status();  // the same answer on every rank
  }
  if (!agreed->claims.ok()) return basis_.Named(agreed->claims);
  return AddSegment(bytes, *agreed);
}

Result<uint64_t> SymmetricMode::Reclaim() {
  MutexLock collective(segments_.collective());
  const uint64_t before = blocks_.counters().pending_bytes;
  Result<Agreed> agreed = collective_.Begin({.call = CollectiveCall::kReclaim, .readiness = basis_.CheckOpen()});
  if (!agreed.ok()) return agreed.status();
  return before - std::min(before, blocks_.counters().pending_bytes);
}

Status SymmetricMode::Unmap(const std::vector<engine::SegmentIndex>& segments, Addresses addresses,
                            uint64_t* released) {
  const ContextGuard current = basis_.MakeCurrent();
  MutexLock growth(segments_.growth());
  for (const engine::SegmentIndex index : segments) {
    Result<bool> gone = segments_.ReleaseOne(index, addresses, released);
    if (!gone.ok()) return gone.status();
    if (!*gone) {
      return Status(StatusCode::kFailedPrecondition,
                    basis_.title + ": another thread allocated during a collective call");
    }
  }
  return Status();
}

Result<uint64_t> SymmetricMode::Release(const std::vector<engine::SegmentIndex>& segments, UnmatchedFrees frees) {
  if (segments.empty()) return uint64_t{0};
  uint64_t released = 0;
  const Status status = collective_.TearDown(
      [&] {
        if (frees == UnmatchedFrees::kApply) ApplyOwnFrees();
        return segments_.Deregister(segments);
      },
      [&] { return Unmap(segments, Addresses::kFree, &released); });
  if (!status.ok()) return status;
  return released;
}

Result<uint64_t> SymmetricMode::Trim(uint64_t keep_bytes) {
  MutexLock collective(segments_.collective());
  Result<Agreed> agreed =
      collective_.Begin({.call = CollectiveCall::kTrim, .bytes = keep_bytes, .readiness = basis_.CheckOpen()});
  if (!agreed.ok()) return agreed.status();
  const std::vector<engine::SegmentIndex> chosen =
      Insist([&] { return segments_.ChooseFree(keep_bytes, SegmentStore::Pinned::kGo); });
  return Release(chosen, UnmatchedFrees::kKeep);
}

Status SymmetricMode::CheckNoLiveBlocks(const char* call) const {
  const uint64_t live = blocks_.counters().allocated_blocks.current;
  if (live == 0) return Status();
  return Status(StatusCode::kFailedPrecondition,
                basis_.title + " still has " + std::to_string(live) + " live blocks: free them before " + call);
}

void SymmetricMode::ApplyOwnFrees() {
  MutexLock lock(blocks_.mutex());
  engine().ApplyFrees(engine().LocallyFreed());
}

Status SymmetricMode::SettleAlone() {
  graph_blocks_.Collect();
  const Status status = blocks_.WaitForDevice();
  if (status.ok()) ApplyOwnFrees();
  if (status.code() != StatusCode::kDeadlineExceeded) return status;
  return Status(status.code(),
                status.message() +
                    " If it is a window collective with a rank that is lost, it never ends, and an abort "
                    "or revoke does not help: end the process");
}

void SymmetricMode::EndClose() {
  losses_.Stop();
  collective_.End();
  basis_.life.EndClose();
}

Status SymmetricMode::CloseAlone() {
  Status status = basis_.device->health().first_error();
  if (status.ok()) status = CheckNoLiveBlocks("close()");
  if (status.ok()) status = segments_.CheckMayUnmap();
  if (!status.ok()) return status;
  basis_.life.BeginClose();
  status = SettleAlone();
  if (!status.ok()) return basis_.Named(status.under("close"));
  uint64_t released = 0;
  status = Unmap(segments_.Indexes(), Addresses::kKeep, &released);
  if (status.ok()) status = segments_.ReleaseSetAside();
  if (!status.ok()) return status;
  EndClose();
  return Status();
}

Status SymmetricMode::Close() {
  MutexLock collective(segments_.collective());
  if (basis_.life.closed()) return Status();
  if (ties_.load(std::memory_order_acquire) == Ties::kAbandoned && segments_.registrations().empty())
    return CloseAlone();
  Status readiness = basis_.device->health().first_error();
  if (readiness.ok()) readiness = CheckNoLiveBlocks("close()");
  Result<Agreed> agreed = collective_.Begin({.call = CollectiveCall::kClose, .readiness = readiness});
  if (!agreed.ok()) return agreed.status();
  basis_.life.BeginClose();
  const std::vector<engine::SegmentIndex> all = Insist([&] { return segments_.Indexes(); });
  Result<uint64_t> released = Release(all, UnmatchedFrees::kApply);
  if (!released.ok()) return released.status();
  Status status = segments_.registrations().RemoveAll();
  EndClose();
  return status;
}

}  // namespace commpool::internal
