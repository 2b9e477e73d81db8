// Finds accesses to the same memory that nothing orders, whatever order the emulator ran them in.
//
// Every operation carries a vector clock (clock.h), made when it starts: of what its stream ran before, of the events
// and streams that it waited for, and of what the host knew when it submitted it. An earlier access that the clock does
// not cover was not waited for: a race, where one of the two writes. The host has one clock a process. Guarded by the
// machine's lock.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_RACE_CHECKER_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_RACE_CHECKER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "src/emulator/cuda/access_history.h"
#include "src/emulator/cuda/address_space.h"
#include "src/emulator/cuda/block_table.h"
#include "src/emulator/cuda/clock.h"
#include "src/emulator/cuda/logbook.h"
#include "src/emulator/cuda/operation.h"

namespace commpool::internal::emulator {

class RaceChecker {
 public:
  enum class Mode { kOff, kOn };  // off, every function does nothing

  // `logbook` outlives the checker.
  RaceChecker(Logbook& logbook, Mode mode);

  bool on() const { return mode_ == Mode::kOn; }

  StreamClock OpenStream();
  void CloseStream(const StreamClock& stream);

  // The history of physical memory: one for all its handles in this process. Null where the checker is off.
  enum class Memory { kFresh, kImported };
  std::shared_ptr<AccessHistory> HistoryOf(uint64_t physical, Memory memory);

  // Submission: notes what the host knew and where the call was made, and checks the announced blocks.
  void Submitted(Operation& operation);
  // Capture, in place of a submission: checks the same blocks.
  void Captured(Operation& operation);
  // Start, when all that it waits for has ended: makes its clock.
  void Started(Operation& operation, const StreamClock& stream);
  // Run: checks what it touches.
  void Touched(const std::shared_ptr<Operation>& operation, AddressSpace& addresses);
  // End: passes its clock on.
  void Ended(const Operation& operation, StreamClock& stream);

  // The host has waited for what the clock covers, or has asked and heard that it is done.
  void HostWaitedFor(const Clock& clock);
  // Reports accesses through the addresses that the host has not waited for.
  void Unmapping(CUdeviceptr address, uint64_t bytes, AddressSpace& addresses);

  // The clock of an operation that still runs, for others: it has read, but it may not have written yet.
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
  // What the host knew before, as operations that have yet to start may hold it.
  std::deque<std::weak_ptr<const Clock>> earlier_host_;
  const uint64_t process_;  // tells this process's components from others'
  uint64_t streams_ = 0;
  std::vector<Moment> closed_;  // components of streams that are gone, and how far they came
  std::map<uint64_t, std::weak_ptr<AccessHistory>> histories_;  // by identity of the physical memory
  size_t pieces_ = 0;                                           // of all histories, those that died included
  size_t most_pieces_;
  std::vector<Conflict> conflicts_;  // of the operation that starts; kept for its memory
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_RACE_CHECKER_H_
