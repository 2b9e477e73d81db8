#include "src/pool/growing/page_growth.h"

#include <utility>

#include "src/base/host_failure.h"
#include "src/base/log.h"

namespace commpool::internal {

PageGrowth::PageGrowth(PoolBasis& basis, BlockStore& blocks, SegmentStore& segments, Territories& territories,
                       const engine::Expansion& plan, Room room)
    : basis_(basis),
      blocks_(blocks),
      segments_(segments),
      territories_(territories),
      plan_(plan),
      room_(std::move(room)) {}

Status PageGrowth::Make() {
  const Status made = Attempt([&] { return MakePages(); });
  if (made.ok()) return made;
  MutexLock lock(blocks_.mutex());
  engine().Unclaim(plan_);
  return made;
}

Status PageGrowth::MakePages() {
  for (const engine::SegmentRange& page : plan_.made) {
    Result<PhysicalMemory> memory = segments_.backing().MakePage(page.bytes);
    if (!memory.ok()) return basis_.Named(memory.status());
    made_.push_back(std::move(*memory));
  }
  return Status();
}

// One call unmaps a row of pages; where it fails they serve on where they are.
Status PageGrowth::MoveRow() {
  const size_t first = moves_begun_;
  const CUdeviceptr from = plan_.moves[first].from;
  Territory& source = territories_.Of(from);
  const size_t end = plan_.EndOfRow(first, source.address() + source.bytes());
  const engine::PageMove& last = plan_.moves[end - 1];
  Result<ReservedVector<PhysicalMemory>> row = source.UnmapRow(from, last.from + last.bytes - from);
  if (!row.ok()) return row.status();
  moves_begun_ = end;
  for (size_t index = first; index < end; ++index) {
    const CUdeviceptr to = plan_.moves[index].to;
    Status status = territories_.Of(to).Map(std::move((*row)[index - first]), to);
    if (!status.ok()) return status;
  }
  return Status();
}

Status PageGrowth::Prepare() {
  while (moves_begun_ < plan_.moves.size()) {
    Status status = MoveRow();
    if (!status.ok()) return status;
  }
  for (size_t index = 0; index < made_.size(); ++index) {
    const CUdeviceptr at = plan_.made[index].address;
    Status status = territories_.Of(at).Map(std::move(made_[index]), at);
    if (!status.ok()) return status;
  }
  for (const engine::SegmentRange& range : plan_.arriving) {
    Status status = territories_.Of(range.address).Open(range.address, range.bytes);
    if (!status.ok()) return status;
  }
  return Status();
}

void PageGrowth::Undo() {
  for (const engine::SegmentRange& range : plan_.arriving) {
    const Status dropped = territories_.Of(range.address).Drop(range.address, range.bytes);
    if (!dropped.ok()) {
      Log(LogLevel::kWarning, basis_.title + " keeps pages that it cannot use: " + dropped.message());
    }
  }
  uint64_t lost = 0;
  MutexLock lock(blocks_.mutex());
  for (size_t index = 0; index < moves_begun_; ++index) {
    lost += plan_.moves[index].bytes;
    engine().Lose(plan_.moves[index]);
  }
  engine().Unclaim(plan_, moves_begun_);
  segments_.ReturnRoom(lost);  // the new pages' room goes back with this object
}

void PageGrowth::Adopt() {
  room_.Keep();
  PoolEvents::Count(basis_.events.moved_bytes, plan_.moved_bytes());
  MutexLock lock(blocks_.mutex());
  engine().Settle(plan_);
}

}  // namespace commpool::internal
