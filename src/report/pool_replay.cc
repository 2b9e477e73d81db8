#include "src/report/pool_replay.h"

#include <algorithm>
#include <map>
#include <string>

#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

uint64_t Less(uint64_t bytes, uint64_t taken) { return bytes - std::min(bytes, taken); }

// The legacy default stream has key 1 (src/stream/stream_key.h).
std::string NameOfStream(uint64_t key) { return key <= 1 ? "default stream" : "stream " + InHex(key); }

}  // namespace

uint32_t PoolReplay::IndexOf(uint64_t handle) const {
  const auto found = indices_.find(handle);
  return found == indices_.end() ? kNone : found->second;
}

void PoolReplay::BeginEra(int64_t time) {
  era_begin_ = time;
  std::map<uint32_t, BytePoint> rest;  // of each pool that lives
  for (const auto& [handle, pool] : indices_) {
    rest[pool] = living_[pool].now;
    rest[pool].reserved = 0;
  }
  // What small blocks hold is not retold, and goes on.
  for (const auto& [address, block] : blocks_) {
    if (block.era + 1 != eras_->now()) continue;
    BytePoint& of_pool = rest[block.pool];
    of_pool.allocated = Less(of_pool.allocated, block.block.bytes);
    of_pool.requested = Less(of_pool.requested, block.block.requested);
  }
  for (const auto& [pool, bytes] : rest) Change(pool, time, bytes);
}

void PoolReplay::Take(int64_t time, const recording::PoolMade& entry) {
  const uint32_t known = IndexOf(entry.pool);
  if (known != kNone) {
    Life& life = living_[known].life;
    if (eras_->Retells(life, time, entry.age)) {
      life.era = eras_->now();
      return;
    }
    EndAll(known, EndOf(life, time));
  }
  const auto pool = static_cast<uint32_t>(pools().size());
  indices_[entry.pool] = pool;
  living_.emplace_back().life = eras_->Begin(time, entry.age);
  pools().push_back({});
  PoolModel& model = pools().back();
  model.handle = entry.pool;
  model.name = texts_->IndexOf(entry.name);
  model.kind = texts_->IndexOf(entry.kind);
  model.device = entry.device;
  model.home = entry.home;
  model.channel = entry.channel;
  model.from = living_.back().life.from;
}

void PoolReplay::Take(int64_t time, const recording::PoolGone& entry) {
  ++place_;
  const uint32_t pool = IndexOf(entry.pool);
  if (pool != kNone) EndAll(pool, time);
}

void PoolReplay::EndAll(uint32_t pool, int64_t time) {
  for (const uint64_t address : members_.Take(pool)) {
    const auto block = blocks_.find(address);
    End(block->second, EndOf(block->second.life(), time));
    blocks_.erase(block);
  }
  PoolModel& model = pools()[pool];
  LivingPool& living = living_[pool];
  for (const auto& [address, segment] : living.segments) model.segments[segment.index].to = EndOf(segment.life, time);
  for (const auto& [key, registration] : living.registrations) {
    model.registrations[registration.index].to = EndOf(registration.life, time);
  }
  living.segments.clear();
  living.registrations.clear();
  Change(pool, time, {});
  model.to = time;
  indices_.erase(model.handle);
}

void PoolReplay::Begin(uint32_t pool, uint64_t address, uint64_t bytes, Life life) {
  std::vector<SegmentModel>& segments = pools()[pool].segments;
  living_[pool].segments[address] = {static_cast<uint32_t>(segments.size()), life};
  segments.push_back({address, bytes, life.from, kUnknown});
  // NCCL may know a segment before the pool has adopted it.
  const auto& registrations = living_[pool].registrations;
  for (auto at = registrations.lower_bound({address, 0}); at != registrations.end(); ++at) {
    if (at->first.first - address >= bytes) break;
    RegistrationModel& model = pools()[pool].registrations[at->second.index];
    if (model.segment == kNone) model.segment = living_[pool].segments[address].index;
  }
}

void PoolReplay::Take(int64_t time, const recording::SegmentMade& entry) {
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  LivingPool& living = living_[pool];
  const auto known = living.segments.find(entry.address);
  BytePoint now = living.now;
  if (known != living.segments.end()) {
    LivingSegment& segment = known->second;
    if (pools()[pool].segments[segment.index].bytes == entry.bytes && eras_->Retells(segment.life, time, entry.age)) {
      // What the counters forgot in a gap.
      if (!eras_->Knows(segment.life)) now.reserved += entry.bytes;
      segment.life.era = eras_->now();
      Change(pool, time, now);
      return;
    }
    pools()[pool].segments[segment.index].to = EndOf(segment.life, time);
    if (eras_->Knows(segment.life)) now.reserved = Less(now.reserved, pools()[pool].segments[segment.index].bytes);
  }
  Begin(pool, entry.address, entry.bytes, eras_->Begin(time, entry.age));
  now.reserved += entry.bytes;
  Change(pool, time, now);
}

void PoolReplay::Take(int64_t time, const recording::SegmentGone& entry) {
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  LivingPool& living = living_[pool];
  const uint64_t end = entry.address + entry.bytes;
  auto at = living.segments.lower_bound(entry.address);
  if (at != living.segments.begin()) --at;
  std::vector<std::pair<SegmentModel, Life>> left;
  while (at != living.segments.end() && at->first < end) {
    SegmentModel& segment = pools()[pool].segments[at->second.index];
    const uint64_t own_end = segment.address + segment.bytes;
    if (own_end <= entry.address) {
      ++at;
      continue;
    }
    // Chapters retell what is left with the age of the whole.
    const Life life{at->second.life.from, eras_->now()};
    if (segment.address < entry.address) {
      left.push_back({{segment.address, entry.address - segment.address}, life});
    }
    if (own_end > end) left.push_back({{end, own_end - end}, life});
    segment.to = time;
    at = living.segments.erase(at);
  }
  for (const auto& [segment, life] : left) {
    Begin(pool, segment.address, segment.bytes, life);
    pools()[pool].segments.back().from = time;
  }
  BytePoint now = living.now;
  now.reserved = Less(now.reserved, entry.bytes);
  Change(pool, time, now);
}

uint32_t PoolReplay::SegmentAt(uint32_t pool, uint64_t address) const {
  const std::map<uint64_t, LivingSegment>& segments = living_[pool].segments;
  const auto after = segments.upper_bound(address);
  if (after == segments.begin()) return kNone;
  const uint32_t index = std::prev(after)->second.index;
  const SegmentModel& segment = pools()[pool].segments[index];
  return address - segment.address < segment.bytes ? index : kNone;
}

void PoolReplay::Allocate(const LivingBlock& block, int64_t time) {
  BytePoint now = living_[block.pool].now;
  now.allocated += block.block.bytes;
  now.requested += block.block.requested;
  Change(block.pool, time, now);
}

void PoolReplay::Take(int64_t time, const recording::BlockServed& entry) {
  ++place_;
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  const auto [place, fresh] = blocks_.try_emplace(entry.address);
  LivingBlock& block = place->second;
  if (!fresh) {
    if (block.pool == pool && block.block.bytes == entry.bytes && eras_->Retells(block.life(), time, entry.age)) {
      const bool forgotten = !eras_->Knows(block.life());
      block.era = eras_->now();
      if (forgotten) Allocate(block, time);
      return;
    }
    End(block, EndOf(block.life(), time));
    if (eras_->Knows(block.life())) {
      BytePoint now = living_[block.pool].now;
      now.allocated = Less(now.allocated, block.block.bytes);
      now.requested = Less(now.requested, block.block.requested);
      Change(block.pool, time, now);
    }
    members_.Remove(block.pool, entry.address);
  }
  members_.Add(pool, entry.address);
  const auto [stream, unnamed] = streams_.try_emplace(entry.stream, kNoText);
  if (unnamed) stream->second = report_->texts.IndexOf(NameOfStream(entry.stream));
  block.pool = pool;
  block.era = eras_->now();
  block.block = {.offset = entry.address,
                 .bytes = entry.bytes,
                 .requested = entry.requested,
                 .from = eras_->Begin(time, entry.age).from,
                 .segment = SegmentAt(pool, entry.address),
                 .stream = stream->second,
                 .stack = texts_->IndexOf(entry.stack)};
  const uint32_t segment = block.block.segment;
  if (segment != kNone) block.block.offset -= pools()[pool].segments[segment].address;
  Allocate(block, time);
}

void PoolReplay::Take(int64_t time, const recording::BlockFreed& entry) {
  ++place_;
  const auto found = blocks_.find(entry.address);
  if (found == blocks_.end()) return;
  const LivingBlock block = found->second;
  blocks_.erase(found);
  members_.Remove(block.pool, entry.address);
  End(block, time);
  if (!eras_->Knows(block.life())) return;
  BytePoint now = living_[block.pool].now;
  now.allocated = Less(now.allocated, block.block.bytes);
  now.requested = Less(now.requested, block.block.requested);
  Change(block.pool, time, now);
}

void PoolReplay::End(const LivingBlock& block, int64_t time) {
  BlockModel ended = block.block;
  ended.to = time;
  kept_->Offer(rank_, block.pool, ended, time);
}

void PoolReplay::Take(int64_t time, const recording::PoolBytes& entry) {
  ++place_;
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  Change(pool, time, {time, entry.reserved, entry.allocated, entry.requested, entry.cached});
}

void PoolReplay::Take(int64_t time, const recording::SmallBlocks& entry) {
  const uint32_t pool = IndexOf(entry.pool);
  if (pool != kNone) pools()[pool].small.Append(time, entry.bytes, entry.served, entry.cached);
}

void PoolReplay::Take(int64_t time, const recording::Registered& entry) {
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  LivingPool& living = living_[pool];
  std::vector<RegistrationModel>& models = pools()[pool].registrations;
  const auto [place, fresh] = living.registrations.try_emplace({entry.address, entry.communicator});
  LivingRegistration& registration = place->second;
  if (!fresh) {
    if (eras_->Retells(registration.life, time, entry.age)) {
      registration.life.era = eras_->now();
      return;
    }
    models[registration.index].to = EndOf(registration.life, time);
  }
  registration = {static_cast<uint32_t>(models.size()), eras_->Begin(time, entry.age)};
  models.push_back(
      {SegmentAt(pool, entry.address), entry.communicator, entry.kind, registration.life.from, kUnknown, entry.cost});
  if (entry.age > 0) return;
  EventModel event{.kind = EventKind::kRegistration, .pool = pool, .to = time};
  event.from = time - TimeOf(entry.cost);
  const bool window = entry.kind == recording::RegistrationEntry::kWindow;
  event.text = std::string(window ? "window" : "buffer") + " of " + InThousands(entry.bytes) +
               " bytes with communicator " + InHex(entry.communicator);
  kept_->Offer(rank_, std::move(event));
}

void PoolReplay::Take(int64_t time, const recording::Deregistered& entry) {
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  LivingPool& living = living_[pool];
  const auto found = living.registrations.find({entry.address, entry.communicator});
  if (found == living.registrations.end()) return;
  pools()[pool].registrations[found->second.index].to = time;
  living.registrations.erase(found);
}

void PoolReplay::Change(uint32_t pool, int64_t time, const BytePoint& bytes) {
  LivingPool& living = living_[pool];
  allocated_ = Less(allocated_, living.now.allocated) + bytes.allocated;
  // While a chapter retells, the sums are not whole.
  const bool retelling = time == era_begin_;
  if (living.retold && !retelling) pools()[pool].bytes.Append(living.now);
  living.retold = retelling;
  living.now = bytes;
  living.now.time = time;
  if (!retelling) pools()[pool].bytes.Append(living.now);
  NoticePeak(time);
}

void PoolReplay::NoticePeak(int64_t time) {
  if (allocated_ > peak_.bytes) peak_ = {time, allocated_, place_};
}

void PoolReplay::Finish() {
  const auto end_of = [&](const Life& life) { return eras_->Knows(life) ? kUnknown : eras_->EndOf(life); };
  for (uint32_t pool = 0; pool < living_.size(); ++pool) {
    PoolModel& model = pools()[pool];
    const LivingPool& living = living_[pool];
    if (model.to == kUnknown) model.to = end_of(living.life);
    if (living.retold) model.bytes.Append(living.now);
    for (const auto& [address, segment] : living.segments) model.segments[segment.index].to = end_of(segment.life);
    for (const auto& [key, registration] : living.registrations) {
      model.registrations[registration.index].to = end_of(registration.life);
    }
  }
  for (auto& [address, living] : blocks_) {
    living.block.to = end_of(living.life());
    kept_->Offer(rank_, living.pool, living.block, living.block.to == kUnknown ? eras_->last() : living.block.to);
  }
  blocks_.clear();
}

}  // namespace commpool::internal::report
