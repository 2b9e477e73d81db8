#include "src/report/allocation_history.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace commpool::internal::report {

void AllocationHistory::BeginChapter(int64_t time, Before before) {
  texts_.Clear();
  const int64_t last = gap_ ? gap_->last : eras_.last();
  if (eras_.BeginChapter(before)) {
    // An unsettled chapter lacks a part: this one retells what lives.
    gap_ = {last, time};
    told_segments_.clear();
    told_blocks_.clear();
  } else {
    Settle();
  }
  eras_.Reach(time);
}

void AllocationHistory::Reach(int64_t time) {
  // All that a chapter retells has the time at which it begins.
  if (gap_ && time > gap_->chapter) Settle();
  eras_.Reach(time);
}

void AllocationHistory::Settle() {
  if (!gap_) return;
  const Gap gap = *std::exchange(gap_, std::nullopt);
  for (Memories* living : {&blocks_, &segments_}) {
    for (auto memory = living->begin(); memory != living->end();) {
      const auto next = std::next(memory);
      if (!eras_.Knows(memory->second.life)) End(*living, memory, gap.last);
      memory = next;
    }
  }
  for (const auto& [address, segment] : std::exchange(told_segments_, {})) Begin(segments_, segment, gap.chapter);
  for (const auto& [address, block] : std::exchange(told_blocks_, {})) Begin(blocks_, block, gap.chapter);
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
    blocks_of_.Remove(memory->second.pool, memory->first);
    sink_->Freed(time, memory->second);
  } else {
    segments_of_.Remove(memory->second.pool, memory->first);
    sink_->SegmentGone(time, memory->second);
  }
  living.erase(memory);
}

void AllocationHistory::Begin(Memories& living, Memory memory, int64_t time) {
  const auto known = living.find(memory.address);
  if (known != living.end()) End(living, known, time);
  if (&living == &blocks_) {
    memory.number = next_number_++;
    blocks_of_.Add(memory.pool, memory.address);
    sink_->Served(time, memory);
  } else {
    segments_of_.Add(memory.pool, memory.address);
    sink_->SegmentMade(time, memory);
  }
  living[memory.address] = memory;
}

void AllocationHistory::Meet(Memories& living, const Memory& memory, int64_t time, uint64_t age) {
  const auto known = living.find(memory.address);
  if (known != living.end() && known->second.bytes == memory.bytes && eras_.Retells(known->second.life, time, age)) {
    known->second.life.era = eras_.now();
  } else if (gap_) {
    (&living == &blocks_ ? told_blocks_ : told_segments_)[memory.address] = memory;
  } else {
    Begin(living, memory, time);
  }
}

void AllocationHistory::Take(int64_t time, const recording::PoolGone& entry) {
  Settle();
  eras_.Reach(time);
  for (const uint64_t address : blocks_of_.Take(entry.pool)) End(blocks_, blocks_.find(address), time);
  for (const uint64_t address : segments_of_.Take(entry.pool)) End(segments_, segments_.find(address), time);
  pools_.erase(entry.pool);
}

void AllocationHistory::Take(int64_t time, const recording::SegmentMade& entry) {
  Reach(time);
  const Pool pool = PoolOf(entry.pool);
  const Memory segment{.address = entry.address,
                       .bytes = entry.bytes,
                       .pool = entry.pool,
                       .device = pool.device,
                       .kind = pool.kind,
                       .life = eras_.Begin(time, entry.age)};
  Meet(segments_, segment, time, entry.age);
}

void AllocationHistory::Take(int64_t time, const recording::SegmentGone& entry) {
  Settle();
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
    segments_of_.Remove(whole.pool, whole.address);
    segment = segments_.erase(segment);
    sink_->SegmentGone(time, part(std::max(whole.address, entry.address), std::min(whole_end, end)));
  }
  for (const Memory& rest : left) {
    segments_of_.Add(rest.pool, rest.address);
    segments_[rest.address] = rest;
  }
}

void AllocationHistory::Take(int64_t time, const recording::BlockServed& entry) {
  Reach(time);
  const Memory block{.address = entry.address,
                     .bytes = entry.bytes,
                     .requested = entry.requested,
                     .stream = entry.stream,
                     .stack = texts_.IndexOf(entry.stack),
                     .pool = entry.pool,
                     .device = PoolOf(entry.pool).device,
                     .life = eras_.Begin(time, entry.age)};
  Meet(blocks_, block, time, entry.age);
}

void AllocationHistory::Take(int64_t time, const recording::BlockFreed& entry) {
  Settle();
  eras_.Reach(time);
  const auto known = blocks_.find(entry.address);
  if (known != blocks_.end()) End(blocks_, known, time);
}

}  // namespace commpool::internal::report
