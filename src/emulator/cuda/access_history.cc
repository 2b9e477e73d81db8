#include "src/emulator/cuda/access_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/emulator/cuda/operation.h"

namespace commpool::internal::emulator {

namespace {

void AddOncePerOperation(std::vector<Conflict>& conflicts, Conflict conflict) {
  const bool known = std::any_of(conflicts.begin(), conflicts.end(), [&](const Conflict& other) {
    return other.earlier.operation == conflict.earlier.operation;
  });
  if (!known) conflicts.push_back(std::move(conflict));
}

void AddUncovered(const Clock& clock, const Access& earlier, AccessKind kind, uint64_t begin, uint64_t end,
                  std::vector<Conflict>& conflicts) {
  if (earlier.operation == nullptr || clock.Covers(earlier.moment)) return;
  AddOncePerOperation(conflicts, {earlier, kind, begin, end});
}

// The end of the block came later in the program, and did not wait for this access: it ran first.
void AddEndThatRanFirst(const Operation& operation, const Access& block_end, uint64_t begin, uint64_t end,
                        std::vector<Conflict>& conflicts) {
  if (block_end.operation == nullptr || block_end.operation->sequence < operation.sequence) return;
  AddOncePerOperation(conflicts, {block_end, AccessKind::kWrite, begin, end});
}

}  // namespace

void AccessHistory::SplitAt(uint64_t offset) {
  auto after = pieces_.upper_bound(offset);
  if (after == pieces_.begin()) return;
  const auto holding = std::prev(after);
  if (holding->first == offset || holding->second.end <= offset) return;
  pieces_.emplace_hint(after, offset, holding->second);
  holding->second.end = offset;
}

void AccessHistory::Record(AccessKind kind, uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
                           std::vector<Conflict>& conflicts) {
  SplitAt(begin);
  SplitAt(end);
  if (kind == AccessKind::kWrite) {
    RecordWrite(begin, end, access, clock, conflicts);
  } else {
    RecordRead(begin, end, access, clock, conflicts);
  }
}

void AccessHistory::RecordWrite(uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
                                std::vector<Conflict>& conflicts) {
  const auto first = pieces_.lower_bound(begin);
  auto next = first;
  for (; next != pieces_.end() && next->first < end; ++next) {
    AddAllUncovered(clock, *next, conflicts);
    AddEndThatRanFirst(*access.operation, next->second.block_end, next->first, next->second.end, conflicts);
  }
  // A later access that waits for this write also waits for everything that the write waited for. The code above has
  // just found what the write did not wait for.
  if (first != next && first->first == begin) {
    first->second = {end, access, {}, {}};
    pieces_.erase(std::next(first), next);
  } else {
    pieces_.emplace_hint(pieces_.erase(first, next), begin, Piece{end, access, {}, {}});
  }
}

void AccessHistory::AddAllUncovered(const Clock& clock, const Pieces::value_type& entry,
                                    std::vector<Conflict>& conflicts) {
  const auto& [begin, piece] = entry;
  AddUncovered(clock, piece.write, AccessKind::kWrite, begin, piece.end, conflicts);
  for (const Access& read : piece.reads) AddUncovered(clock, read, AccessKind::kRead, begin, piece.end, conflicts);
}

AccessHistory::Pieces::iterator AccessHistory::PieceFrom(Pieces::iterator next, uint64_t begin, uint64_t end) {
  if (next != pieces_.end() && next->first == begin) return next;
  const uint64_t gap_end = next == pieces_.end() ? end : std::min(end, next->first);
  return pieces_.emplace_hint(next, begin, Piece{gap_end, {}, {}, {}});
}

void AccessHistory::RecordRead(uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
                               std::vector<Conflict>& conflicts) {
  uint64_t reached = begin;
  for (auto next = pieces_.lower_bound(begin); reached < end; ++next) {
    next = PieceFrom(next, reached, end);
    Piece& piece = next->second;
    AddUncovered(clock, piece.write, AccessKind::kWrite, next->first, piece.end, conflicts);
    AddEndThatRanFirst(*access.operation, piece.block_end, next->first, piece.end, conflicts);
    std::erase_if(piece.reads, [&](const Access& read) { return clock.Covers(read.moment); });
    piece.reads.push_back(access);
    reached = piece.end;
  }
}

void AccessHistory::End(uint64_t begin, uint64_t end, const Access& access, const Clock& clock,
                        std::vector<Conflict>& conflicts) {
  SplitAt(begin);
  SplitAt(end);
  uint64_t reached = begin;
  for (auto next = pieces_.lower_bound(begin); reached < end; ++next) {
    next = PieceFrom(next, reached, end);
    AddAllUncovered(clock, *next, conflicts);
    next->second.block_end = access;
    reached = next->second.end;
  }
}

std::vector<Conflict> AccessHistory::NotCoveredBy(const Clock& clock, CUdeviceptr base) const {
  std::vector<Conflict> found;
  for (const auto& [begin, piece] : pieces_) {
    const auto check = [&, first = begin](const Access& access, AccessKind kind, uint64_t end) {
      if (access.operation == nullptr || access.base != base || clock.Covers(access.moment)) return;
      AddOncePerOperation(found, {access, kind, first, end});
    };
    check(piece.write, AccessKind::kWrite, piece.end);
    for (const Access& read : piece.reads) check(read, AccessKind::kRead, piece.end);
  }
  return found;
}

void AccessHistory::Prune(const Clock& clock) {
  for (auto next = pieces_.begin(); next != pieces_.end();) {
    Piece& piece = next->second;
    if (clock.Covers(piece.write.moment)) piece.write = {};
    std::erase_if(piece.reads, [&](const Access& read) { return clock.Covers(read.moment); });
    if (clock.Covers(piece.block_end.moment)) piece.block_end = {};
    const bool untouched = piece.write.operation == nullptr && piece.reads.empty();
    next = untouched && piece.block_end.operation == nullptr ? pieces_.erase(next) : std::next(next);
  }
}

}  // namespace commpool::internal::emulator
