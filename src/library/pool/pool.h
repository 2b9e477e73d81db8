// Pool: private memory of one backing at one place, with its own blocks, peers, registrations, limits and statistics.
//
// A pool consists of its parts, the same in every mode, and its mode (PoolMode). This class owns both and decides
// nothing itself. The C ABI, scopes and tables call it. Any thread may call any method, but the calls that commpool.h
// marks COLLECTIVE run one at a time for each pool. The lock order is in src/library/reference.md.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "commpool/status.h"
#include "src/library/base/try.h"
#include "src/library/pool/blocks/block_store.h"
#include "src/library/pool/options.h"
#include "src/library/pool/segments/segment_store.h"
#include "src/library/pool/segments/sleep.h"
#include "src/library/registration/communicator.h"

namespace commpool::internal {

class SymmetricMode;

// Whether the device may be at work: then memory stays whose release would wait for it.
enum class DeviceWork { kMayWork = COMMPOOL_DEVICE_MAY_WORK, kIdle = COMMPOOL_DEVICE_IDLE };

// Whether to wait for memory that streams may still use. kNo: only what is known to be idle goes.
enum class Wait { kNo, kYes };

// What differs between fixed, expandable and symmetric pools: how they serve a request that free memory cannot serve,
// and how they grow, shrink, register and close. Pool owns one and calls it without a lock, from any thread.
// GrowingMode and SymmetricMode are the two kinds. It owns what only its own kind needs.
class PoolMode : protected PoolParts {
 public:
  explicit PoolMode(const PoolParts& parts) : PoolParts(parts) {}
  virtual ~PoolMode() = default;

  // This object as a symmetric mode, for calls that only pools with ranks have; null where the pool has none.
  virtual SymmetricMode* AsSymmetric() { return nullptr; }

  // Serves a request of an open pool. kOutOfMemory where nothing is left to try; kExhausted where only a call of all
  // ranks could help.
  virtual Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream) = 0;
  // From free memory that the stream may use without a wait. 0 where that is not possible now: then call Allocate.
  virtual CUdeviceptr ServeAtOnce(uint64_t, StreamKey) { return 0; }
  // Called when blocks have come back, without a lock: the pool may now give memory back to the driver.
  virtual void AfterFree() = 0;
  // For a stream whose work is done and whose handle will be recycled.
  virtual void ForgetStream(StreamKey stream) { blocks_.ForgetStream(stream); }

  // Space.
  //
  // Makes memory until a request of so many bytes could be served at once.
  virtual Status Reserve(uint64_t bytes) = 0;
  // Lets frees take effect that can. Returns how many bytes other requests may use now; in pools that are not
  // symmetric, how many went back to the driver.
  virtual Result<uint64_t> Reclaim() = 0;
  // Releases free memory until at most `keep_bytes` are reserved. Returns the released bytes.
  virtual Result<uint64_t> Trim(uint64_t keep_bytes) = 0;
  // Releases what another pool of the device may take when memory runs out (rule 7). Never collective. On the thread of
  // the pool that lacks memory. Never fails: what does not go stays. A symmetric pool gives nothing: another rank would
  // not shrink with it (rule 1). A destroyed pool whose memory is not idle yet is asked again (OtherPools).
  virtual uint64_t ReleaseUnused(Wait) { return 0; }
  // The same for a call of anybody that failed, and from within it: only what is known to be idle, without a wait and
  // without a call of NCCL or of the program's functions.
  virtual uint64_t ReleaseIdle(DeviceWork) { return 0; }
  // Ends the pool in order. After a failure it may be called again.
  virtual Status Close() = 0;
  // Both change nothing where they fail, or where `others` do, or say that the pool is asleep (segments/sleep.h).
  // REQUIRES: the pool's collective lock.
  virtual Status Sleep(const SleepRequest& request, OtherPoolsOfCall others) = 0;
  virtual Status Wake(const SleepRequest& request, OtherPoolsOfCall others) = 0;
  // Called when the pool has just been destroyed or abandoned.
  virtual void AfterDestroy() = 0;
  // Ends what runs on other threads for this pool. The runtime's destructor calls it.
  virtual void BeforeAbandon() {}

  // Registration. In a symmetric pool these calls are collective over home, all but RegisterPending. In others they
  // concern this rank alone.
  virtual Status RegisterWith(ncclComm_t communicator) = 0;
  // A symmetric pool has nothing pending: reserve has registered what it made.
  virtual Result<uint64_t> RegisterPending() { return uint64_t{0}; }
  virtual Status Deregister(ncclComm_t communicator) = 0;
  // The same with a library beside NCCL. A rank of a symmetric pool may have none.
  virtual Status AddRegistrar(const RegistrarRequest& request) = 0;
  virtual Status RemoveRegistrar(const std::string& name) = 0;
  // Ends the registrations with the communicator on this rank alone. No collective call: after a loss the others need
  // not make it.
  virtual Status AbandonCommunicator(ncclComm_t communicator, CommunicatorLife life) {
    return segments_.AbandonCommunicator(communicator, life);
  }
};

// The parts of a pool whose construction can fail. They are made first, so a pool is never half made. The factory
// gathers them.
struct PoolIngredients {
  std::unique_ptr<PoolBasis> basis;
  std::unique_ptr<Backing> backing;
  std::shared_ptr<MemoryAccount> account;
  std::unique_ptr<engine::Engine> engine = {};  // the mode must know its class
};

// PoolTable keeps a pool until its handle ends, AddressTable as long as it has segments: so blocks may outlive the
// handle. Members are destroyed from the last to the first: the mode, then the parts. Runtime calls it for requests,
// the C ABI for everything else, other pools through OtherPools, and the share server's thread for importers.
class Pool final : public BlockOwner, public SharedMemory {
 public:
  // Makes the mode over the pool's parts, which outlive it.
  using MakeMode = std::function<std::unique_ptr<PoolMode>(const PoolParts&)>;

  static std::shared_ptr<Pool> Make(PoolIngredients ingredients, const MakeMode& make_mode);
  Pool(PoolIngredients ingredients, const MakeMode& make_mode);

  // The table of pools sets it; 0 before.
  PoolHandle handle() const { return basis_->handle; }
  // The parts. What one of them does by itself it is asked for.
  PoolBasis& basis() const { return *basis_; }
  GraphCaptures& captures() { return captures_; }
  BlockStore& blocks() { return blocks_; }
  SegmentStore& segments() { return segments_; }
  PoolMode& mode() const { return *mode_; }

  const std::string& name() const override { return basis_->name(); }
  int device() const override { return basis_->device->device(); }
  bool symmetric() const override { return basis_->configuration.symmetric(); }

  // Blocks.
  Result<commpool_block> FindBlock(CUdeviceptr address) const override;
  // The pool's own way of a request: no thread's cache is asked here (Runtime does that first). Tries as often as the
  // configuration says, with pauses, because others may release memory meanwhile. On the thread of the program, without
  // a lock.
  Result<CUdeviceptr> Allocate(uint64_t bytes, StreamKey stream);
  // The way of most requests that no cache serves: free memory, and none of the library's driver calls. 0: call
  // Allocate. REQUIRES: no capture is open; the stream's handle, which the call passes, means the stream, if the pool
  // alone uses its memory.
  CUdeviceptr ServeAtOnce(uint64_t bytes, CUstream handle, StreamKey stream) {
    const bool means_it = !IsDefault(handle) || !segments_.peers.OthersMayUse();
    return means_it && !basis_->device->health().broken() ? mode_->ServeAtOnce(bytes, stream) : 0;
  }
  Status Free(CUdeviceptr address) override {
    Status status = captures_.any_open() ? FreeBesideCaptures(address) : blocks_.Free(address);
    if (status.code() != StatusCode::kNotFound) mode_->AfterFree();
    return status;
  }
  Status RecordStream(CUdeviceptr address, StreamKey stream) override;
  // The place of default streams' handles in calls that name the pool; nothing where other devices may use its memory:
  // then the handle means the stream of the current device. One load.
  std::optional<int> PlaceOfDefaultStreams() const {
    return segments_.peers.OthersMayUse() ? std::nullopt : std::optional(device());
  }
  // The pool's own default stream may use the block too. For programs that leave another device current: they mean
  // that stream, although `stream`, by which the block was served, is the current device's.
  Status AddOwnDefaultStream(CUdeviceptr address, CUstream handle, StreamKey stream);
  bool streams_outlive() const override { return basis_->configuration.streams == Streams::kOutlive; }
  void TakeBack(const engine::ReturnedBlocks& returned) override;

  // Captures. `stream`, which `key` names, captures; kNotSupported where the pool cannot serve it. Runtime gives the
  // number, and keeps the pool alive until EndCapture.
  Status BeginCapture(CaptureHandle capture, CUstream stream, StreamKey key);
  // Returns the capture's stream.
  CUstream EndCapture(CaptureHandle capture);

  // What comes before and after the mode does its part.
  Result<uint64_t> Trim(uint64_t keep_bytes);
  Status Close();
  // In a call for one or several pools (AllOrNone in group_calls.h). REQUIRES: the pool's collective lock.
  Status Sleep(const SleepRequest& request, OtherPoolsOfCall others);
  Status Wake(const SleepRequest& request, OtherPoolsOfCall others);
  Result<Exported> Export(uint64_t address, std::optional<uint64_t> known) override {
    return segments_.exporter.Export(address, known);
  }
  // The free of a block that importers held takes effect now.
  void LetGo(uint64_t address) override {
    blocks_.LetGo(address);
    mode_->AfterFree();
  }
  // The handle has ended: the pool serves no more, and a segment goes when its last block is freed.
  void Destroy();
  // The runtime ends: wait for nothing and call no NCCL.
  void Abandon();

  // Statistics.
  commpool_statistics Statistics(BlockStore::Peaks peaks = BlockStore::Peaks::kKeep) const;
  // Records what the pool has, for a recording that begins.
  void RecordPresent();
  // Records what has changed in a slice of time. Only the recorder's thread calls it.
  void RecordSlice();

 private:
  Status FreeBesideCaptures(CUdeviceptr address);

  // Made first and destroyed last: all other members have references to it.
  const std::unique_ptr<PoolBasis> basis_;
  // In the order in which they refer to each other: each has references to those above it.
  GraphCaptures captures_;
  BlockStore blocks_;
  SegmentStore segments_;
  const std::unique_ptr<PoolMode> mode_;  // destroyed first: it uses the other members
};

}  // namespace commpool::internal
