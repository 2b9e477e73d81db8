#include "src/report/pool_replay.h"

#include <algorithm>
#include <string>

#include "src/library/base/bytes.h"
#include "src/report/words.h"

namespace commpool::internal::report {

namespace {

constexpr size_t kMostHolders = 500;

uint64_t Less(uint64_t bytes, uint64_t taken) { return bytes - std::min(bytes, taken); }

// The legacy default stream has key 1 (src/library/stream/stream_key.h).
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
  for (const auto& [address, block] : book_->blocks()) {
    if (block.life.era + 1 != eras().now()) continue;
    BytePoint& of_pool = rest[IndexOf(block.pool)];
    of_pool.allocated = Less(of_pool.allocated, block.bytes);
    of_pool.requested = Less(of_pool.requested, block.requested);
  }
  for (auto& [key, holder] : holders_) {
    holder.bytes.Set(0, peak_);
    holder.blocks.Set(0, peak_);
  }
  for (const auto& [pool, bytes] : rest) Change(pool, time, bytes);
}

void PoolReplay::PoolMade(const recording::PoolMade& entry, const Life& life) {
  indices_[entry.pool] = static_cast<uint32_t>(pools().size());
  living_.emplace_back();
  PoolModel& model = pools().emplace_back();
  model.handle = entry.pool;
  model.name = book_->texts().IndexOf(entry.name);
  model.kind = book_->texts().IndexOf(entry.kind);
  model.device = entry.device;
  model.home = entry.home;
  model.channel = entry.channel;
  model.from = life.from;
  if (entry.budget != 0) model.budget = BudgetOf(book_->texts().IndexOf(entry.budget), entry.device);
}

uint32_t PoolReplay::BudgetOf(uint32_t name, int64_t device) {
  std::vector<BudgetModel>& budgets = report_->ranks[rank_].budgets;
  const auto is = [&](const BudgetModel& budget) { return budget.name == name && budget.device == device; };
  const auto place = static_cast<size_t>(std::find_if(budgets.begin(), budgets.end(), is) - budgets.begin());
  if (place == budgets.size()) budgets.push_back({.name = name, .device = device});
  return static_cast<uint32_t>(place);
}

void PoolReplay::PoolGone(int64_t time, uint64_t handle) {
  const uint32_t pool = IndexOf(handle);
  LivingPool& living = living_[pool];
  for (const auto& [key, registration] : living.registrations) {
    const bool known = eras().Knows(registration.life);
    pools()[pool].registrations[registration.index].to = known ? time : eras().EndOf(registration.life);
  }
  living.registrations.clear();
  for (auto& [bytes, blocks] : living.cached) blocks.Set(0, peak_);
  Change(pool, time, {});
  pools()[pool].to = time;
  indices_.erase(handle);
}

void PoolReplay::BeginSegment(const Memory& segment, int64_t from, uint32_t* number) {
  const uint32_t pool = IndexOf(segment.pool);
  PoolModel& model = pools()[pool];
  *number = static_cast<uint32_t>(model.segments.size());
  living_[pool].segments[segment.address] = *number;
  model.segments.push_back({segment.address, segment.bytes, from, kUnknown});
  // NCCL may know a segment before the pool has adopted it.
  const auto& registrations = living_[pool].registrations;
  for (auto at = registrations.lower_bound({segment.address, 0}); at != registrations.end(); ++at) {
    if (at->first.first - segment.address >= segment.bytes) break;
    RegistrationModel& registration = model.registrations[at->second.index];
    if (registration.segment == kNone) registration.segment = *number;
  }
}

void PoolReplay::SegmentMade(int64_t time, Memory& segment) {
  BeginSegment(segment, segment.life.from, &segment.segment);
  SegmentRetold(time, segment);
}

void PoolReplay::SegmentRetold(int64_t time, const Memory& segment) {
  const uint32_t pool = IndexOf(segment.pool);
  BytePoint now = living_[pool].now;
  now.reserved += segment.bytes;
  Change(pool, time, now);
}

void PoolReplay::SegmentLeft(int64_t time, Memory& segment) { BeginSegment(segment, time, &segment.segment); }

void PoolReplay::SegmentGone(int64_t time, const Memory& segment, const Memory& gone) {
  const uint32_t pool = IndexOf(segment.pool);
  pools()[pool].segments[segment.segment].to = time;
  living_[pool].segments.erase(segment.address);
  if (!eras().Knows(segment.life)) return;
  BytePoint now = living_[pool].now;
  now.reserved = Less(now.reserved, gone.bytes);
  Change(pool, time, now);
}

uint32_t PoolReplay::SegmentAt(uint32_t pool, uint64_t address) const {
  const std::map<uint64_t, uint32_t>& segments = living_[pool].segments;
  const auto after = segments.upper_bound(address);
  if (after == segments.begin()) return kNone;
  const uint32_t index = std::prev(after)->second;
  const SegmentModel& segment = pools()[pool].segments[index];
  return address - segment.address < segment.bytes ? index : kNone;
}

void PoolReplay::Served(int64_t time, Memory& block) {
  block.segment = SegmentAt(IndexOf(block.pool), block.address);
  Hold(block, time);
}

void PoolReplay::Freed(int64_t time, const Memory& block) {
  Keep(block, time);
  if (eras().Knows(block.life)) LetGo(block, time);
}

void PoolReplay::Hold(const Memory& block, int64_t time) {
  const uint32_t pool = IndexOf(block.pool);
  Holder& holder = holders_[{pool, block.stack}];
  holder.bytes.Set(holder.bytes.now() + block.bytes, peak_);
  holder.blocks.Set(holder.blocks.now() + 1, peak_);
  BytePoint now = living_[pool].now;
  now.allocated += block.bytes;
  now.requested += block.requested;
  Change(pool, time, now);
}

void PoolReplay::LetGo(const Memory& block, int64_t time) {
  const uint32_t pool = IndexOf(block.pool);
  Holder& holder = holders_[{pool, block.stack}];
  holder.bytes.Set(holder.bytes.now() - block.bytes, peak_);
  holder.blocks.Set(holder.blocks.now() - 1, peak_);
  BytePoint now = living_[pool].now;
  now.allocated = Less(now.allocated, block.bytes);
  now.requested = Less(now.requested, block.requested);
  Change(pool, time, now);
}

// `to` is kUnknown of a block that still lives.
void PoolReplay::Keep(const Memory& block, int64_t to) {
  const auto [stream, unnamed] = streams_.try_emplace(block.stream, kNoText);
  if (unnamed) stream->second = report_->texts.IndexOf(NameOfStream(block.stream));
  const uint32_t pool = IndexOf(block.pool);
  const bool placed = block.segment != kNone;
  const BlockModel model{
      .offset = block.address - (placed ? pools()[pool].segments[block.segment].address : 0),
      .bytes = block.bytes,
      .requested = block.requested,
      .from = block.life.from,
      .to = to,
      .segment = block.segment,
      .stream = stream->second,
      .stack = block.stack,
  };
  kept_->Offer(rank_, pool, model, to == kUnknown ? eras().last() : to);
}

void PoolReplay::Take(int64_t time, const recording::PoolBytes& entry) {
  book_->Settle(time);
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  if (const uint32_t budget = pools()[pool].budget; budget != kNone) {
    BudgetModel& model = report_->ranks[rank_].budgets[budget];
    model.bytes = entry.budget;
    model.peak = entry.budget_peak;
    model.limit = entry.budget_limit;
  }
  Change(pool, time, {time, entry.reserved, entry.allocated, entry.requested, entry.cached, entry.pending});
}

void PoolReplay::Take(int64_t time, const recording::SmallBlocks& entry) {
  book_->Settle(time);
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  pools()[pool].small.Append(time, entry.bytes, entry.served, entry.cached);
  living_[pool].cached[entry.bytes].Set(entry.cached, peak_);
}

void PoolReplay::Take(int64_t time, const recording::Registered& entry) {
  book_->Settle(time);
  const uint32_t pool = IndexOf(entry.pool);
  if (pool == kNone) return;
  LivingPool& living = living_[pool];
  std::vector<RegistrationModel>& models = pools()[pool].registrations;
  const auto [place, fresh] = living.registrations.try_emplace({entry.address, entry.communicator});
  LivingRegistration& registration = place->second;
  if (!fresh) {
    if (eras().Retells(registration.life, time, entry.age)) {
      registration.life.era = eras().now();
      return;
    }
    models[registration.index].to = eras().Knows(registration.life) ? time : eras().EndOf(registration.life);
  }
  registration = {static_cast<uint32_t>(models.size()), eras().Begin(time, entry.age)};
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
  book_->Settle(time);
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
  living.allocated.Set(bytes.allocated, peak_);
  // While a chapter retells, the sums are not whole.
  const bool retelling = time == era_begin_;
  if (living.retold && !retelling) pools()[pool].bytes.Append(living.now);
  living.retold = retelling;
  living.now = bytes;
  living.now.time = time;
  if (!retelling) pools()[pool].bytes.Append(living.now);
  PeakModel& peak = report_->ranks[rank_].peak;
  if (allocated_ <= peak.bytes) return;
  peak.time = time;
  peak.bytes = allocated_;
  ++peak_;
}

void PoolReplay::Finish() {
  const auto end_of = [&](const Life& life) { return eras().Knows(life) ? kUnknown : eras().EndOf(life); };
  for (const auto& [handle, pool] : indices_) {
    pools()[pool].to = end_of(book_->LifeOf(handle));
    for (const auto& [key, registration] : living_[pool].registrations) {
      pools()[pool].registrations[registration.index].to = end_of(registration.life);
    }
  }
  for (uint32_t pool = 0; pool < living_.size(); ++pool) {
    if (living_[pool].retold) pools()[pool].bytes.Append(living_[pool].now);
  }
  for (const auto& [address, block] : book_->blocks()) Keep(block, kUnknown);
  if (peak_ > 0) ListHolders();
}

void PoolReplay::ListSmallBlocks(uint32_t pool, uint64_t listed) {
  std::vector<HolderModel>& holders = report_->ranks[rank_].peak.holders;
  const uint64_t allocated = living_[pool].allocated.At(peak_);
  if (allocated > listed) {
    holders.push_back({pool, allocated - listed, -1, kNoText, "small blocks that threads' caches served"});
  }
  for (const auto& [bytes, cached] : living_[pool].cached) {
    const uint64_t blocks = cached.At(peak_);
    if (blocks == 0 || bytes == 0 || blocks > kGiB * kGiB / bytes) continue;
    holders.push_back({pool, blocks * bytes, static_cast<int64_t>(blocks), kNoText,
                       "free in threads' caches: blocks of " + FormatBytes(bytes)});
  }
}

void PoolReplay::ListHolders() {
  std::vector<HolderModel>& holders = report_->ranks[rank_].peak.holders;
  std::vector<uint64_t> listed(living_.size());  // bytes by pool
  for (const auto& [key, holder] : holders_) {
    const auto& [pool, stack] = key;
    const uint64_t blocks = holder.blocks.At(peak_);
    if (blocks == 0) continue;
    const std::string& text = report_->texts[stack];
    holders.push_back({pool, holder.bytes.At(peak_), static_cast<int64_t>(blocks), stack,
                       text.empty() ? "no stack was recorded" : text.substr(0, text.find('\n'))});
    listed[pool] += holders.back().bytes;
  }
  for (uint32_t pool = 0; pool < living_.size(); ++pool) ListSmallBlocks(pool, listed[pool]);
  std::stable_sort(holders.begin(), holders.end(),
                   [](const HolderModel& a, const HolderModel& b) { return a.bytes > b.bytes; });
  if (holders.size() <= kMostHolders) return;
  HolderModel rest{.what = "all others"};
  for (size_t holder = kMostHolders; holder < holders.size(); ++holder) {
    rest.bytes += holders[holder].bytes;
    rest.blocks += std::max<int64_t>(holders[holder].blocks, 0);
  }
  holders.resize(kMostHolders);
  holders.push_back(std::move(rest));
}

}  // namespace commpool::internal::report
