// Finds accesses to the same memory that nothing orders, in whatever order the emulator ran them.
//
// Every operation carries a vector clock (clock.h). It gets the clock when it starts: the clock covers earlier work of
// its stream, the events and streams that it waited for, and what the host knew at submission. If the clock does not
// cover an earlier access, the operation did not wait for it: that is a race, if one of the two writes. The host of a
// process has one clock. The machine's lock guards everything here.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "src/emulator/cuda/access_history.h"
#include "src/emulator/cuda/address_space.h"
#include "src/emulator/cuda/block_table.h"
#include "src/emulator/cuda/call_stack.h"
#include "src/emulator/cuda/clock.h"
#include "src/emulator/cuda/logbook.h"
#include "src/emulator/cuda/operation.h"

namespace commpool::internal::emulator {

// The place in the program of what this thread submits; null if nobody told. The text lives as long as the process.
const char*& PlaceOfThisThread();

// Owns the host's clock, the histories of memory and the announced blocks. The machine and the scheduler call it.
class RaceChecker {
 public:
  enum class Mode { kOff, kOn };  // kOff: every function does nothing

  // `logbook` outlives the checker.
  RaceChecker(Logbook& logbook, Mode mode);

  bool on() const { return mode_ == Mode::kOn; }

  StreamClock OpenStream();
  void CloseStream(const StreamClock& stream);

  // Returns the history of physical memory. All its handles in this process share it. Null if the checker is off.
  enum class Memory { kFresh, kImported };
  std::shared_ptr<AccessHistory> HistoryOf(uint64_t physical, Memory memory);

  // At submission: notes what the host knows and who called, and checks the announced blocks.
  void Submitted(Operation& operation);
  // At capture, instead of a submission: checks the same blocks.
  void Captured(Operation& operation);
  // At the start, when everything that it waits for has ended: makes its clock.
  void Started(Operation& operation, const StreamClock& stream);
  // At the run: checks what it touches.
  void Touched(const std::shared_ptr<Operation>& operation, AddressSpace& addresses);
  // At the end: passes its clock on.
  void Ended(const Operation& operation, StreamClock& stream);

  // Call it when the host has waited for what the clock covers.
  void HostWaitedFor(const Clock& clock);
  // Call it when this thread has asked and heard that it is done. The program does not know what its allocators ask:
  // that orders only the reuse of their memory.
  void Heard(const Clock& clock);
  // True where nothing is checked.
  bool HostKnows(const Clock& clock) const { return !on() || host_->Covers(clock); }
  // For memory that PyTorch's allocator takes from a pool.
  void LetPyTorchsKnowWhatPoolsHave();
  // What the host or the allocator knows.
  std::shared_ptr<const Clock> heard(Asker by) const { return heard_.at(by); }
  // Reports accesses through these addresses that the host has not waited for.
  void Unmapping(CUdeviceptr address, uint64_t bytes, AddressSpace& addresses);

  // Returns the clock that a running operation gives to others: it has read, but it may not have written yet.
  Clock Contribution(const Operation& operation) const;

  BlockTable& blocks() { return blocks_; }

 private:
  void Touch(AccessKind kind, const commpoolEmulatorRange& range, const std::shared_ptr<Operation>& operation,
             AddressSpace& addresses);
  void CheckBlocks(const Operation& operation, BlockTable::Ends ends);
  void PruneWhereLarge();
  std::shared_ptr<const Clock> Floor();

  const Mode mode_;
  Logbook& logbook_;
  BlockTable blocks_;
  std::shared_ptr<const Clock> host_ = std::make_shared<Clock>();
  std::map<Asker, std::shared_ptr<const Clock>> heard_ = {{Asker::kAllocator, host_}, {Asker::kPools, host_}};
  // What the host knew earlier. Operations that have not started may hold these clocks.
  std::deque<std::weak_ptr<const Clock>> earlier_host_;
  const uint64_t process_;  // differs between processes
  uint64_t streams_ = 0;
  std::vector<Moment> closed_;  // components of destroyed streams, and how far they came
  std::map<uint64_t, std::weak_ptr<AccessHistory>> histories_;  // by identity of the physical memory
  size_t pieces_ = 0;                                           // in all histories, those that have ended too
  size_t most_pieces_;
  std::vector<Conflict> conflicts_;  // of the operation that starts; kept to reuse its memory
};

}  // namespace commpool::internal::emulator
