// The owner's books of one shared pool: its secret, the blocks that it has shared, and the processes that import it.
//
// Pure but for the words of reading boards and the events of others. ShareServer owns one for each pool, guards it with
// its lock, and waits and calls the driver outside of that lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/failure.h"
#include "src/library/base/mutex.h"
#include "src/library/sharing/message_channel.h"
#include "src/library/sharing/reading_board.h"
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
    FileDescriptor descriptor = {};
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
  // A line of the board for a block that the importer did not hold. kExhausted where it holds too many.
  Result<size_t> Hold(Importer& importer, uint64_t block);
  void LetGo(Importer& importer, uint64_t block);

 private:
  std::map<uint64_t, uint64_t> numbers_;  // of blocks that are not freed, by address
};

}  // namespace commpool::internal
