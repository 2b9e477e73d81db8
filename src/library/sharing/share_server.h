// ShareServer: the owner's side of shared pools: one socket and one thread a process, made at the first share.
//
// The thread accepts importers, answers them and notices their end. Calls of the owner never wait for a process that
// has stopped reading: what it cannot be told is queued, and a full queue ends its connection. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/loader.h"
#include "src/library/sharing/rank_offers.h"
#include "src/library/sharing/share_folder.h"
#include "src/library/sharing/shared_pool.h"

namespace commpool::internal {

class ShareServer {
 public:
  // `folder`: of its socket; empty for the default.
  explicit ShareServer(const Driver& driver, std::string folder = {});
  ~ShareServer();

  // The pool's ticket. `facts` of its first call count. REQUIRES: the pool's context is current.
  Result<std::string> SharePool(const SharedPoolFacts& facts, Imports imports);
  bool IsShared(uint64_t pool);
  // Whether this process made the ticket.
  bool IsOwn(const Ticket& ticket);
  // The ticket of a live block. REQUIRES: its pool is shared.
  Result<std::string> ShareBlock(uint64_t pool, const SharedBlock& block);

  // Waits until nobody reads the block, and keeps reads from beginning. Errors: see commpool_update_begin.
  Status BeginUpdate(uint64_t pool, uint64_t address);
  // REQUIRES: the pool's context is current, and the stream does not capture.
  Status EndUpdate(uint64_t pool, uint64_t address, CUstream stream);

  // The owner has freed the block: whether its memory may serve at once. Else SharedMemory::LetGo comes later. Calls
  // nothing, so a caller may hold a lock.
  bool MayServe(uint64_t pool, uint64_t address);
  // The pool's shared blocks that may not serve: not freed, or held by somebody. What checks compare with the pool's.
  std::vector<SharedBlock> Kept(uint64_t pool);

  // kFailedPrecondition where processes import the pool and may not be told to sleep.
  Status CheckMaySleep(uint64_t pool);
  // Makes all importers let the memory go. Where one does not, TellAwake comes next.
  Status TellAsleep(uint64_t pool);
  void TellAwake(uint64_t pool);
  // From now on nobody new imports the pool. It is forgotten, with its events, once no process imports it and its
  // shared blocks are freed.
  void EndPool(uint64_t pool);

  // Gives the descriptors to whoever knows the secret, as long as the caller keeps the offer.
  Result<RankOffer> Offer(std::vector<FileDescriptor> descriptors);

  // Ends the thread and all connections. From now on nothing can be shared.
  void Stop();

 private:
  using Importers = std::vector<std::shared_ptr<Importer>>;

  Status Start();
  void Wake();
  void Serve(int port);
  // Returns false where the process has no descriptor for the next caller.
  bool AcceptAll(int port);
  // Reads what an importer has said. Returns false once its connection has ended.
  bool Hear(const std::shared_ptr<Importer>& importer);
  Status AnswerAll(const std::shared_ptr<Importer>& importer);
  Status Answer(const std::shared_ptr<Importer>& importer, const ShareMessage& question);
  Status Welcome(const std::shared_ptr<Importer>& importer, const ShareMessage& hello);
  Status GiveSegment(Importer& importer, const ShareMessage& question);
  Status GiveBlock(Importer& importer, const ShareMessage& question);
  Status GiveOffer(Importer& asker, const ShareMessage& question);
  void TakeBack(Importer& importer, uint64_t block);
  void NoteAsleep(Importer& importer, const ShareMessage& answer);
  // Tells those that hold the block, unless its writes have ended or they know.
  void TellOfWrites(uint64_t pool, uint64_t block);
  // What an importer held it holds no more.
  void Drop(const std::shared_ptr<Importer>& importer);
  void SendTo(Importer& importer, const ShareMessage& message, FileDescriptor descriptor = {});

  void ForgetEnded() COMMPOOL_EXCLUDES(mutex_);  // calls the driver
  std::shared_ptr<SharedPool> Find(uint64_t pool) COMMPOOL_REQUIRES(mutex_);
  // Returns true once the importer reads the block no more; false after the deadline.
  Result<bool> AwaitReads(const std::shared_ptr<Importer>& importer, uint64_t block, Deadline deadline);
  // Ends an update: `updated` is its record, nothing where it did not happen.
  void OpenGate(uint64_t pool, uint64_t block, std::optional<uint64_t> updated);

  const Driver& driver_;
  const std::string folder_;
  Mutex mutex_{LockRank::kLeaf};
  std::map<uint64_t, std::shared_ptr<SharedPool>> pools_ COMMPOOL_GUARDED_BY(mutex_);
  uint64_t next_block_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::map<HashKey, OfferedDescriptors::weak_type> offers_ COMMPOOL_GUARDED_BY(mutex_);
  ShareListener listener_ COMMPOOL_GUARDED_BY(mutex_);
  std::thread thread_ COMMPOOL_GUARDED_BY(mutex_);
  FileDescriptor wake_;
  std::atomic<bool> ending_{false};  // set under the lock: no thread starts then
  Importers connected_;              // the thread's own
};

}  // namespace commpool::internal
