// PoolImport: another process's pool in this one. It maps segments when something in them is asked for, holds blocks,
// and orders reads against the owner's updates.
//
// One thread of its own hears the owner: answers to this process's questions, news of sleep, and the owner's end. What
// is mapped stays whatever becomes of the owner. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/failure.h"
#include "src/library/base/interruption.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/handles.h"
#include "src/library/driver/loader.h"
#include "src/library/sharing/mapped_memory.h"
#include "src/library/sharing/message_channel.h"
#include "src/library/sharing/reading_board.h"
#include "src/library/sharing/shared_records.h"
#include "src/library/sharing/ticket.h"

namespace commpool::internal {

struct ImportOptions {
  int device = -1;  // -1: the pool's own
  ImportAddresses addresses = ImportAddresses::kAny;
  uint64_t deadline_ms = 60000;
  // Waits for all work on the device, at most so long. Refuses in a capture, which the wait would break.
  std::function<Status(int device, uint64_t deadline_ms)> quiesce = {};
};

struct ImportedBlock {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// Locks, outermost first: `asking` (one question at a time), `mapping` (driver calls), then a leaf for the books.
class PoolImport {
 public:
  // Errors: see commpool_import_open.
  static Result<std::unique_ptr<PoolImport>> Open(const Driver& driver, const Ticket& ticket,
                                                  const ImportOptions& options);
  ~PoolImport();

  Result<ImportedBlock> Block(const Ticket& ticket);
  Result<CUdeviceptr> Address(uint64_t theirs);
  Status BeginRead(CUdeviceptr address);
  // REQUIRES: the stream does not capture.
  Status EndRead(CUdeviceptr address, CUstream stream);
  Status Release(CUdeviceptr address, CUstream stream);
  // Unmaps all. REQUIRES: the device is idle.
  Status Close();

  int device() const { return context_.device(); }
  uint64_t deadline_ms() const { return options_.deadline_ms; }

 private:
  struct Held {
    uint64_t number = 0;
    uint64_t bytes = 0;
    size_t line = 0;
    uint64_t times = 0;    // asked for and not released; 0: the ticket's block, until the program asks for it
    uint64_t reading = 0;  // reads between begin and end
    uint64_t record = 0;   // of the releases so far: the latest
  };
  using HeldBlocks = std::map<CUdeviceptr, Held>;
  // What somebody wants of a block.
  enum class Use { kBeginRead, kEndRead, kRelease };

  PoolImport(const Driver& driver, const Ticket& ticket, const ImportOptions& options, PrimaryContext context);
  Status Connect();
  // Takes the answers about the ticket's block, by the numbers of the two questions, where they come soon.
  void HoldFirst(uint64_t block_question, uint64_t segment_question, Deadline deadline);

  enum class Awaited { kAnswer, kAwake };
  // Waits for it, or for the connection's end. Without the lock between two slices: a handler of a signal may free
  // blocks. False where the wait had to end before.
  bool Await(WaitSlices& slices, Awaited awaited) COMMPOOL_EXCLUDES(mutex_);
  Result<Received> Ask(ShareMessage question, ShareKind expected) COMMPOOL_REQUIRES(asking_);
  // Maps the segment that holds an address of the owner's, unless it is mapped; returns its number.
  Result<uint64_t> MapSegmentOf(uint64_t theirs) COMMPOOL_REQUIRES(asking_);
  Status Map(const Received& answer) COMMPOOL_REQUIRES(mapping_);
  Status CheckAwake();
  // Holds a block that the owner has named. Where that cannot be, the owner hears that this import lets it go.
  Result<ImportedBlock> Hold(uint64_t number, const ShareMessage& answer, uint64_t times) COMMPOOL_EXCLUDES(mapping_);
  // A block that is held already, or on its way out; nothing where it has to be asked for.
  std::optional<ImportedBlock> HoldAgain(uint64_t number);
  // Where a block of a mapped segment is here.
  std::optional<CUdeviceptr> Find(uint64_t segment, uint64_t theirs, uint64_t bytes = 1) COMMPOOL_EXCLUDES(mapping_);
  // Records behind the stream's work on a block; FindHeld's errors.
  Result<uint64_t> Record(CUdeviceptr address, Use use, CUstream stream);
  Status AwaitUpdate(const ReadingBoard::Line& line, WaitSlices& slices);
  // kNotFound where this import holds no block there; kFailedPrecondition where its reads do not allow the use.
  Result<HeldBlocks::iterator> FindHeld(CUdeviceptr address, Use use) COMMPOOL_REQUIRES(mutex_);
  void LeaveRead(Held& held) COMMPOOL_REQUIRES(mutex_);
  // Why a gate that is not open never opens again; OK where it may.
  Status NeverReadable(Gate gate) const;
  Status OwnerEnded() const;
  // kNotFound once another thread closes the import.
  Status CheckNotClosing() const;
  Status NoAnswer() const;
  Deadline deadline() const { return DeadlineAfter(std::chrono::milliseconds(options_.deadline_ms)); }

  // The thread.
  void Serve();
  void Wake();
  // Takes all that has come. kRemoteFailure once the connection has ended.
  Status Hear();
  void Take(Received received);
  void NoteEnd();
  void SendLeaving();
  void FallAsleep(uint64_t deadline_ms, uint64_t sleep);
  Status LetMemoryGo(Deadline end);
  void WakeUp();
  // For the thread that reads. Send asks the owner, and returns the question's number; AwaitNow waits for its answer.
  // Messages that come meanwhile are kept for later.
  Status SendQueued();
  Result<uint64_t> Send(ShareMessage question);
  Result<Received> AwaitNow(uint64_t question, Deadline deadline);

  const Driver& driver_;
  const ImportOptions options_;
  const Ticket ticket_;      // of the pool, or of the block that it was opened with
  const std::string owner_;  // "process 12"
  PrimaryContext context_;
  std::string title_;
  ReadingBoard board_;
  OpenedRecords updates_;
  FileDescriptor wake_;

  Mutex asking_{LockRank::kCollective};
  Mutex mapping_{LockRank::kGrowth};
  ImportedSegments segments_ COMMPOOL_GUARDED_BY(mapping_);
  SharedRecords reads_ COMMPOOL_GUARDED_BY(mapping_);
  std::atomic<uint64_t> passed_updates_{0};

  Mutex mutex_{LockRank::kLeaf};
  Condition changed_;
  MessageChannel channel_;  // one thread receives; who sends holds the mutex
  std::optional<Received> answer_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t next_question_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  uint64_t asked_ COMMPOOL_GUARDED_BY(mutex_) = 0;  // the question that somebody waits with; 0: none
  HeldBlocks held_ COMMPOOL_GUARDED_BY(mutex_);
  std::vector<HeldBlocks::node_type> leaving_ COMMPOOL_GUARDED_BY(mutex_);  // each goes once its record has passed
  bool welcome_ COMMPOOL_GUARDED_BY(mutex_) = false;                        // from here on the thread alone reads
  bool asleep_ COMMPOOL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> sleeps_{0};                   // how often it fell asleep
  Status awake_failure_ COMMPOOL_GUARDED_BY(mutex_);  // why memory is missing since the owner woke, or ended asleep
  std::atomic<bool> ended_{false};                    // the connection
  std::atomic<bool> dropped_{false};                  // ended by an owner that is still there
  std::atomic<bool> closing_{false};
  std::deque<Received> for_later_;  // the thread's own
  std::thread thread_;
};

// The imports of a process by their handles, which are never reused. Runtime owns one. Any thread.
class ImportTable {
 public:
  uint64_t Add(std::shared_ptr<PoolImport> import) {
    MutexLock lock(mutex_);
    imports_.emplace(next_, std::move(import));
    return next_++;
  }
  // kNotFound for a handle that never was, or was closed.
  Result<std::shared_ptr<PoolImport>> Find(uint64_t handle) {
    MutexLock lock(mutex_);
    const auto found = imports_.find(handle);
    if (found != imports_.end()) return found->second;
    return Missing(handle);
  }
  // The same, and out of the table.
  Result<std::shared_ptr<PoolImport>> Take(uint64_t handle) {
    MutexLock lock(mutex_);
    auto taken = imports_.extract(handle);
    if (!taken.empty()) return std::move(taken.mapped());
    return Missing(handle);
  }

 private:
  static Status Missing(uint64_t handle) { return NotFound("import ", handle, " was closed, or never opened"); }

  Mutex mutex_{LockRank::kPoolTable};
  std::map<uint64_t, std::shared_ptr<PoolImport>> imports_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
};

}  // namespace commpool::internal
