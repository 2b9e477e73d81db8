// Remembers who touched a piece of physical memory, and when: for each byte the last write, and the reads since.
//
// The history stays with the memory, not with its addresses, so pages that move to other addresses keep it. It is not
// thread-safe: the machine's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "src/emulator/cuda/clock.h"

namespace commpool::internal::emulator {

struct Operation;

enum class AccessKind { kRead, kWrite };

struct Access {
  std::shared_ptr<const Operation> operation;  // null: no operation
  Moment moment;
  CUdeviceptr base = 0;  // the address at which this operation saw offset 0 of the memory
};

// An earlier access that the later one did not wait for, as its clock shows. At least one of the two is a write.
struct Conflict {
  Access earlier;
  AccessKind earlier_kind = AccessKind::kWrite;
  uint64_t begin = 0;  // the bytes that both touched
  uint64_t end = 0;
};

// Owns the accesses to one physical allocation. The race checker makes it and calls it.
class AccessHistory {
 public:
  // Adds an access to bytes [begin, end), made by an operation whose clock is `clock`. Appends its conflicts, one for
  // each earlier operation.
  void Record(AccessKind kind, uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
              std::vector<Conflict>& conflicts);

  // Ends the block at [begin, end). Appends the accesses that the end did not wait for, like those of a write. Those
  // that were submitted before the end, but run after it, find it too. Nothing has to wait for the end.
  void End(uint64_t begin, uint64_t end, const Access& access, const Clock& clock, std::vector<Conflict>& conflicts);

  // Finds the accesses through addresses from `base` on that the clock does not cover, one for each operation.
  std::vector<Conflict> NotCoveredBy(const Clock& clock, CUdeviceptr base) const;

  // Forgets what the clock covers. Later accesses must come after the clock.
  void Prune(const Clock& clock);

  size_t size() const { return pieces_.size(); }

 private:
  struct Piece {
    uint64_t end = 0;
    Access write;
    std::vector<Access> reads;  // no read here covers another
    Access block_end;           // of the block that lay here
  };
  using Pieces = std::map<uint64_t, Piece>;  // by first byte

  void SplitAt(uint64_t offset);
  // The piece that begins there. A gap becomes one without accesses. REQUIRES: `next` is the first from `begin` on.
  Pieces::iterator PieceFrom(Pieces::iterator next, uint64_t begin, uint64_t end);
  static void AddAllUncovered(const Clock& clock, const Pieces::value_type& entry, std::vector<Conflict>& conflicts);
  void RecordWrite(uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
                   std::vector<Conflict>& conflicts);
  void RecordRead(uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
                  std::vector<Conflict>& conflicts);

  Pieces pieces_;
};

}  // namespace commpool::internal::emulator
