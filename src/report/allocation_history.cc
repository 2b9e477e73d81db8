#include "src/report/allocation_history.h"

#include <iterator>
#include <vector>

namespace commpool::internal::report {

void AllocationHistory::BeginChapter(int64_t time, Before before) {
  texts_.Clear();
  static_cast<void>(eras_.BeginChapter(before));
  eras_.Reach(time);
}

int64_t AllocationHistory::DeviceOf(uint64_t pool) const {
  const auto found = devices_.find(pool);
  return found == devices_.end() ? 0 : found->second;
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
  devices_.erase(entry.pool);
}

void AllocationHistory::Take(int64_t time, const recording::SegmentMade& entry) {
  Memory segment{.address = entry.address,
                 .bytes = entry.bytes,
                 .pool = entry.pool,
                 .device = DeviceOf(entry.pool),
                 .life = eras_.Begin(time, entry.age)};
  if (!IsNew(segments_, segment, time, entry.age)) return;
  segments_[entry.address] = segment;
  sink_->SegmentMade(time, segment);
}

void AllocationHistory::Take(int64_t time, const recording::SegmentGone& entry) {
  eras_.Reach(time);
  const uint64_t end = entry.address + entry.bytes;
  std::vector<Memory> left;
  auto segment = segments_.lower_bound(entry.address);
  if (segment != segments_.begin()) --segment;
  while (segment != segments_.end() && segment->first < end) {
    const auto next = std::next(segment);
    Memory rest = segment->second;
    const uint64_t own_end = rest.address + rest.bytes;
    if (own_end > entry.address) {
      if (rest.address < entry.address) {
        rest.bytes = entry.address - rest.address;
        left.push_back(rest);
      }
      if (own_end > end) {
        rest.address = end;
        rest.bytes = own_end - end;
        left.push_back(rest);
      }
      End(segments_, segment, time);
    }
    segment = next;
  }
  for (const Memory& rest : left) {
    segments_[rest.address] = rest;
    sink_->SegmentMade(time, rest);
  }
}

void AllocationHistory::Take(int64_t time, const recording::BlockServed& entry) {
  Memory block{next_number_,    entry.address,        entry.bytes,
               entry.requested, entry.stream,         texts_.IndexOf(entry.stack),
               entry.pool,      DeviceOf(entry.pool), eras_.Begin(time, entry.age)};
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
