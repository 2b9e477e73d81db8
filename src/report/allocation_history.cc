#include "src/report/allocation_history.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace commpool::internal::report {

void AllocationHistory::BeginChapter(int64_t time, Before before) {
  texts_.Clear();
  static_cast<void>(eras_.BeginChapter(before));
  eras_.Reach(time);
}

AllocationHistory::Pool AllocationHistory::PoolOf(uint64_t handle) const {
  const auto found = pools_.find(handle);
  return found == pools_.end() ? Pool() : found->second;
}

void AllocationHistory::Take(int64_t, const recording::PoolMade& entry) {
  const bool expandable = texts_.TextOf(entry.kind).ends_with(", expandable");
  pools_[entry.pool] = {entry.device, expandable ? SegmentKind::kPages : SegmentKind::kWhole};
}

void AllocationHistory::End(Memories& living, Memories::iterator memory, int64_t time) {
  if (&living == &blocks_) {
    sink_->Freed(time, memory->second);
  } else {
    sink_->SegmentGone(time, memory->second);
  }
  living.erase(memory);
}

bool AllocationHistory::IsNew(Memories& living, const Memory& memory, int64_t time, uint64_t age) {
  eras_.Reach(time);
  const auto known = living.find(memory.address);
  if (known == living.end()) return true;
  if (known->second.bytes == memory.bytes && eras_.Retells(known->second.life, time, age)) {
    known->second.life.era = eras_.now();
    return false;
  }
  End(living, known, time);
  return true;
}

void AllocationHistory::Take(int64_t time, const recording::PoolGone& entry) {
  eras_.Reach(time);
  for (Memories* living : {&blocks_, &segments_}) {
    for (auto memory = living->begin(); memory != living->end();) {
      const auto next = std::next(memory);
      if (memory->second.pool == entry.pool) End(*living, memory, time);
      memory = next;
    }
  }
  pools_.erase(entry.pool);
}

void AllocationHistory::Take(int64_t time, const recording::SegmentMade& entry) {
  const Pool pool = PoolOf(entry.pool);
  Memory segment{.address = entry.address,
                 .bytes = entry.bytes,
                 .pool = entry.pool,
                 .device = pool.device,
                 .kind = pool.kind,
                 .life = eras_.Begin(time, entry.age)};
  if (!IsNew(segments_, segment, time, entry.age)) return;
  segments_[entry.address] = segment;
  sink_->SegmentMade(time, segment);
}

void AllocationHistory::Take(int64_t time, const recording::SegmentGone& entry) {
  eras_.Reach(time);
  const uint64_t end = entry.address + entry.bytes;
  std::vector<Memory> left;  // chapters retell it with the age of the whole
  auto segment = segments_.lower_bound(entry.address);
  if (segment != segments_.begin()) --segment;
  while (segment != segments_.end() && segment->first < end) {
    const Memory whole = segment->second;
    const uint64_t whole_end = whole.address + whole.bytes;
    if (whole_end <= entry.address) {
      ++segment;
      continue;
    }
    const auto part = [&](uint64_t from, uint64_t to) {
      Memory memory = whole;
      memory.address = from;
      memory.bytes = to - from;
      return memory;
    };
    if (whole.address < entry.address) left.push_back(part(whole.address, entry.address));
    if (whole_end > end) left.push_back(part(end, whole_end));
    segment = segments_.erase(segment);
    sink_->SegmentGone(time, part(std::max(whole.address, entry.address), std::min(whole_end, end)));
  }
  for (const Memory& rest : left) segments_[rest.address] = rest;
}

void AllocationHistory::Take(int64_t time, const recording::BlockServed& entry) {
  const Memory block{.number = next_number_,
                     .address = entry.address,
                     .bytes = entry.bytes,
                     .requested = entry.requested,
                     .stream = entry.stream,
                     .stack = texts_.IndexOf(entry.stack),
                     .pool = entry.pool,
                     .device = PoolOf(entry.pool).device,
                     .life = eras_.Begin(time, entry.age)};
  if (!IsNew(blocks_, block, time, entry.age)) return;
  ++next_number_;
  blocks_[entry.address] = block;
  sink_->Served(time, block);
}

void AllocationHistory::Take(int64_t time, const recording::BlockFreed& entry) {
  eras_.Reach(time);
  const auto known = blocks_.find(entry.address);
  if (known != blocks_.end()) End(blocks_, known, time);
}

void AllocationHistory::Finish() {
  for (Memories* living : {&blocks_, &segments_}) {
    for (auto memory = living->begin(); memory != living->end();) {
      const auto next = std::next(memory);
      if (!eras_.Knows(memory->second.life)) End(*living, memory, eras_.last());
      memory = next;
    }
  }
}

}  // namespace commpool::internal::report
