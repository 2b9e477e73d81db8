// Reads of an import's blocks, in order with their owner's updates.
#include <algorithm>

#include "src/library/base/try.h"
#include "src/library/sharing/pool_import.h"

namespace commpool::internal {

Status PoolImport::NeverReadable(Gate gate) const {
  if (gate != Gate::kFreed && gate != Gate::kPoolEnded) return Status();
  return RemoteFailure("the owner, ", owner_, gate == Gate::kFreed ? ", has freed the block" : ", has ended its pool",
                       " within an update of it: what is there is neither old nor new");
}

void PoolImport::LeaveRead(Held& held) {
  ReadingBoard::Line& line = board_.line(held.line);
  --held.reading;
  --line.readers;
  if (GateOf(line) != Gate::kOpen) WakeWaiters(line.readers);
  changed_.NotifyAll();
}

Status PoolImport::BeginRead(CUdeviceptr address) {
  WaitSlices slices(deadline());
  const Status late = DeadlineExceeded("an update by ", owner_, ", or its pool's sleep, has not ended within ",
                                       options_.deadline_ms, " ms");
  ReadingBoard::Line* line = nullptr;
  for (Gate gate = Gate::kUpdating; gate != Gate::kOpen;) {
    const bool in_time = Await(slices, Awaited::kAwake);
    {
      MutexLock lock(mutex_);
      COMMPOOL_TRY(CheckNotClosing());
      if (dropped_ || (ended_ && asleep_)) return OwnerEnded();
      COMMPOOL_TRY(awake_failure_);
      if (asleep_ && !in_time) return late;
      if (asleep_) continue;  // again, since that wait
      const auto found = COMMPOOL_TRY(FindHeld(address, Use::kBeginRead));
      line = &board_.line(found->second.line);
      ++found->second.reading;
      ++line->readers;
      gate = GateOf(*line);
      if (gate != Gate::kOpen) {
        LeaveRead(found->second);
        COMMPOOL_TRY(NeverReadable(gate));
        if (ended_) return OwnerEnded().under("an update was under way");
      }
    }
    if (gate != Gate::kOpen && slices.Over()) return late;
    if (gate != Gate::kOpen) AwaitChange(line->gate, static_cast<uint32_t>(gate));
  }
  const Status updated = AwaitUpdate(*line, slices);
  if (updated.ok()) return updated;
  MutexLock lock(mutex_);
  if (const auto again = FindHeld(address, Use::kBeginRead); again.ok()) LeaveRead((*again)->second);
  return updated;
}

Status PoolImport::AwaitUpdate(const ReadingBoard::Line& line, WaitSlices& slices) {
  const uint64_t update = line.updated;
  const ContextGuard current(driver_, context_);
  for (Pauses pauses; update > passed_updates_; pauses.Pause()) {
    const bool ended = ended_;  // before the look at what it has told
    const Result<bool> passed = updates_.Passed(driver_, update, board_.page().updates);
    if (passed.ok() && *passed) {
      uint64_t known = passed_updates_;
      while (known < update && !passed_updates_.compare_exchange_weak(known, update)) {
      }
      return Status();
    }
    if (ended) return OwnerEnded().under("an update was under way");
    COMMPOOL_TRY(CheckNotClosing());
    if (!passed.ok()) return passed.status();
    if (slices.Over()) return DeadlineExceeded("the work of an update by ", owner_, " has not ended on the device");
  }
  return Status();
}

Result<uint64_t> PoolImport::Record(CUdeviceptr address, Use use, CUstream stream) {
  {
    MutexLock lock(mutex_);
    COMMPOOL_TRY(FindHeld(address, use));
  }
  const ContextGuard current(driver_, context_);
  MutexLock mapping(mapping_);
  const uint64_t record = COMMPOOL_TRY(reads_.Record(stream));
  reads_.Publish(board_.page().reads);
  return record;
}

Status PoolImport::EndRead(CUdeviceptr address, CUstream stream) {
  const uint64_t record = COMMPOOL_TRY(Record(address, Use::kEndRead, stream));
  MutexLock lock(mutex_);
  const auto found =
      COMMPOOL_TRY(FindHeld(address, Use::kEndRead));  // another thread may have ended the read meanwhile
  ReadingBoard::Line& line = board_.line(found->second.line);
  line.read = std::max(line.read.load(), record);  // another thread may have recorded a later one
  LeaveRead(found->second);
  return Status();
}

Status PoolImport::Release(CUdeviceptr address, CUstream stream) {
  // Of every release: the owner waits for the latest record, which covers those before it.
  const uint64_t record = COMMPOOL_TRY(Record(address, Use::kRelease, stream));
  {
    MutexLock lock(mutex_);
    const auto found = COMMPOOL_TRY(FindHeld(address, Use::kRelease));
    Held& held = found->second;
    held.record = std::max(held.record, record);  // another thread may have recorded a later one
    if (--held.times > 0) return Status();
    leaving_.push_back(held_.extract(found));
  }
  Wake();
  return Status();
}

}  // namespace commpool::internal
