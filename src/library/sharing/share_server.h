// ShareServer: the owner's side of shared pools: one socket and one thread a process, made at the first share.
//
// The thread accepts importers, answers them and notices their end. Calls of the owner never wait for a process that
// has stopped reading: what it cannot be told is queued, and a full queue ends its connection. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/failure.h"
#include "src/library/base/mutex.h"
#include "src/library/driver/loader.h"
#include "src/library/sharing/message_channel.h"
#include "src/library/sharing/rank_offers.h"
#include "src/library/sharing/reading_board.h"
#include "src/library/sharing/share_folder.h"
#include "src/library/sharing/shared_records.h"
#include "src/library/sharing/ticket.h"

namespace commpool::internal {

// The numbers are those of the C ABI.
enum class Imports : int { kRefuseSleep = 0, kSleepToo = 1 };
enum class Writes : int { kGoOn = 0, kEnded = 1 };

// What the server needs of a pool. Pool implements it. Any thread, without a lock.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;

  struct Exported {
    uint64_t address = 0;  // of the segment that holds the address
    uint64_t bytes = 0;
    uint64_t number = 0;  // a segment's number never comes back
    // What imports it: the fabric's bytes, else a descriptor; neither where the number is `known`.
    std::string fabric = {};
    PrivateDescriptor descriptor = {};
  };
  // kNotFound where no segment holds the address; kFailedPrecondition asleep.
  virtual Result<Exported> Export(uint64_t address, std::optional<uint64_t> known) = 0;
  // Nobody holds the block any more that its owner has freed: its memory may serve again.
  virtual void LetGo(uint64_t address) = 0;
};

// What a pool says of itself when it is shared. Constant.
struct SharedPoolFacts {
  uint64_t number = 0;  // its handle
  std::string title;
  std::string device;  // PCI address
  std::weak_ptr<SharedMemory> memory;
  uint64_t deadline_ms = 0;
};

// A process that imports a pool.
struct Importer {
  std::atomic<bool> gone{false};      // its connection has ended
  std::atomic<uint32_t> answered{0};  // the number of the last sleep that it has answered
  pid_t process = 0;
  uint64_t pool = 0;  // 0 until it has named one
  ReadingBoard board;
  OpenedRecords reads;

  // The server's lock guards these.
  MessageChannel channel;
  std::map<uint64_t, size_t> lines;  // of the board, by the number of the block
  std::vector<size_t> free_lines;    // held before; with those in `lines` the first ones of the board
  Status slept;                      // that answer
  bool awaits_updates = false;       // it was told that a block which it holds may be written

  std::string name() const { return "process " + std::to_string(process); }
};

struct SharedBlock {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t segment = 0;
  Writes writes = Writes::kGoOn;
  Gate gate = Gate::kOpen;
  bool freed = false;    // by its owner
  uint64_t updated = 0;  // the record of its last update
};

// The owner's books of one shared pool: its secret, the blocks that it has shared, and the processes that import it.
//
// Pure but for the words of reading boards and the events of others. ShareServer owns one for each pool, guards it with
// its lock, and waits and calls the driver outside of that lock.
class SharedPool {
 public:
  SharedPool(SharedPoolFacts of_pool, HashKey of_tickets, SharedRecords records)
      : facts(std::move(of_pool)), secret(of_tickets), updates(std::move(records)) {}

  const SharedPoolFacts facts;
  const HashKey secret;
  // Held across the record of an update (Mutex: it guards the order of records).
  Mutex recording{LockRank::kGrowth};
  SharedRecords updates;

  // The server's lock guards what follows.
  Imports imports = Imports::kRefuseSleep;
  bool ended = false;                      // closed or destroyed: nobody new may import it
  bool asleep = false;                     // importers were told to let the memory go, and not to map it again
  uint32_t sleeps = 0;                     // the number of the last sleep
  std::map<uint64_t, SharedBlock> blocks;  // by number
  std::vector<std::shared_ptr<Importer>> importers;

  // Of a block, or with 0 of the pool alone.
  Ticket TicketOf(const std::string& socket, uint64_t block) const;
  void Add(uint64_t number, const SharedBlock& block);
  // The owner has freed the block, or ended the pool. Reads that wait for the end of an update hear it.
  void NoteFree(uint64_t number);
  void NoteEnd();
  // Lets reads of the block begin, or keeps them from it.
  void SetGate(SharedBlock& block, uint64_t number, Gate gate);
  // Removes a block that its owner has freed and nobody holds. Returns false for others.
  bool Forget(uint64_t number);
  // The block's number; 0 where it was not shared, or has been freed.
  uint64_t NumberOf(uint64_t address) const;
  bool IsHeld(uint64_t block) const;
  // What importers hear that sleep with a pool which does not wake any more.
  Status EndedAsleep() const { return RemoteFailure(facts.title, " ended while it was asleep: its memory is gone"); }
  // Nobody can ask about it any more.
  bool MayBeForgotten() const { return ended && importers.empty() && blocks.empty(); }
  // The block's line of the board, a new one where the importer did not hold the block. kExhausted where it holds too
  // many.
  Result<size_t> Hold(Importer& importer, uint64_t block);
  void LetGo(Importer& importer, uint64_t block);

 private:
  std::map<uint64_t, uint64_t> numbers_;  // of blocks that are not freed, by address
};

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
  Result<RankOffer> Offer(std::vector<PrivateDescriptor> descriptors);

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
  void SendTo(Importer& importer, const ShareMessage& message, PrivateDescriptor descriptor = {});

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
