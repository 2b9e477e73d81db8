#include "src/report/memory_book.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace commpool::internal::report {

bool MemoryBook::BeginChapter(int64_t time, Before before) {
  texts_.Clear();
  const bool gap = eras_.BeginChapter(before);
  if (gap) {
    // An unsettled chapter lacks a part: this one retells what lives.
    unsettled_ = time;
    told_segments_.clear();
    told_blocks_.clear();
    eras_.Reach(time);
  } else {
    Settle(time);
  }
  return gap;
}

void MemoryBook::Reach(int64_t time) {
  // All that a chapter retells has the time at which it begins.
  if (unsettled_ && time > *unsettled_) Settle(time);
  eras_.Reach(time);
}

void MemoryBook::Settle(int64_t time) {
  if (const std::optional<int64_t> chapter = std::exchange(unsettled_, std::nullopt)) {
    EndUnknown(blocks_);
    EndUnknown(segments_);
    for (const auto& [address, segment] : std::exchange(told_segments_, {})) Begin(segments_, segment, *chapter);
    for (const auto& [address, block] : std::exchange(told_blocks_, {})) Begin(blocks_, block, *chapter);
  }
  eras_.Reach(time);
}

void MemoryBook::EndUnknown(Memories& living) {
  for (auto memory = living.begin(); memory != living.end();) {
    const auto next = std::next(memory);
    const Life& life = memory->second.life;
    if (!eras_.Knows(life)) End(living, memory, eras_.EndOf(life));
    memory = next;
  }
}

void MemoryBook::End(Memories& living, Memories::iterator memory, int64_t time) {
  if (&living == &blocks_) {
    blocks_of_.Remove(memory->second.pool, memory->first);
    listener_->Freed(time, memory->second);
  } else {
    segments_of_.Remove(memory->second.pool, memory->first);
    listener_->SegmentGone(time, memory->second, memory->second);
  }
  living.erase(memory);
}

void MemoryBook::Begin(Memories& living, Memory memory, int64_t time) {
  const auto known = living.find(memory.address);
  if (known != living.end()) End(living, known, time);
  if (&living == &blocks_) {
    memory.number = next_number_++;
    blocks_of_.Add(memory.pool, memory.address);
    listener_->Served(time, memory);
  } else {
    segments_of_.Add(memory.pool, memory.address);
    listener_->SegmentMade(time, memory);
  }
  living[memory.address] = memory;
}

void MemoryBook::Meet(Memories& living, Memory memory, int64_t time, uint64_t age) {
  const auto pool = pools_.find(memory.pool);
  if (pool == pools_.end()) return;
  memory.device = pool->second.device;
  memory.kind = pool->second.kind;
  memory.life = eras_.Begin(time, age);
  const bool block = &living == &blocks_;
  const auto known = living.find(memory.address);
  if (known != living.end() && known->second.bytes == memory.bytes && known->second.pool == memory.pool &&
      eras_.Retells(known->second.life, time, age)) {
    const bool forgotten = !eras_.Knows(known->second.life);
    known->second.life.era = eras_.now();
    if (forgotten) block ? listener_->BlockRetold(time, known->second) : listener_->SegmentRetold(time, known->second);
  } else if (unsettled_) {
    (block ? told_blocks_ : told_segments_)[memory.address] = memory;
  } else {
    Begin(living, memory, time);
  }
}

void MemoryBook::EndPool(uint64_t handle, int64_t time) {
  for (const uint64_t address : blocks_of_.Take(handle)) {
    const auto block = blocks_.find(address);
    End(blocks_, block, EndOf(block->second.life, time));
  }
  for (const uint64_t address : segments_of_.Take(handle)) {
    const auto segment = segments_.find(address);
    End(segments_, segment, EndOf(segment->second.life, time));
  }
  listener_->PoolGone(time, handle);
  pools_.erase(handle);
}

void MemoryBook::Take(int64_t time, const recording::PoolMade& entry) {
  Reach(time);
  const auto known = pools_.find(entry.pool);
  if (known != pools_.end()) {
    if (eras_.Retells(known->second.life, time, entry.age)) {
      known->second.life.era = eras_.now();
      return;
    }
    EndPool(entry.pool, EndOf(known->second.life, time));
  }
  const bool expandable = texts_.TextOf(entry.kind).ends_with(", expandable");
  const Life life = eras_.Begin(time, entry.age);
  pools_[entry.pool] = {entry.device, expandable ? SegmentKind::kPages : SegmentKind::kWhole, life};
  listener_->PoolMade(entry, life);
}

void MemoryBook::Take(int64_t time, const recording::PoolGone& entry) {
  Settle(time);
  if (pools_.contains(entry.pool)) EndPool(entry.pool, time);
}

void MemoryBook::Take(int64_t time, const recording::SegmentMade& entry) {
  Reach(time);
  Meet(segments_, {.address = entry.address, .bytes = entry.bytes, .pool = entry.pool}, time, entry.age);
}

void MemoryBook::Take(int64_t time, const recording::SegmentGone& entry) {
  Settle(time);
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
    listener_->SegmentGone(time, whole, part(std::max(whole.address, entry.address), std::min(whole_end, end)));
  }
  for (Memory& rest : left) {
    if (segments_.contains(rest.address)) continue;  // of a damaged recording
    segments_of_.Add(rest.pool, rest.address);
    listener_->SegmentLeft(time, rest);
    segments_[rest.address] = rest;
  }
}

void MemoryBook::Take(int64_t time, const recording::BlockServed& entry) {
  Reach(time);
  Meet(blocks_,
       {.address = entry.address,
        .bytes = entry.bytes,
        .requested = entry.requested,
        .stream = entry.stream,
        .stack = texts_.IndexOf(entry.stack),
        .pool = entry.pool},
       time, entry.age);
}

void MemoryBook::Take(int64_t time, const recording::BlockFreed& entry) {
  Settle(time);
  const auto known = blocks_.find(entry.address);
  if (known != blocks_.end()) End(blocks_, known, time);
}

void MemoryBook::Take(int64_t time, const recording::Lost&) {
  eras_.Reach(time);
  eras_.Lose();
}

}  // namespace commpool::internal::report
