#include "src/report/second_look.h"

#include <algorithm>
#include <string>

#include "src/base/bytes.h"

namespace commpool::internal::report {

namespace {

constexpr size_t kMostHolders = 500;

uint32_t IndexOf(const std::unordered_map<uint64_t, uint32_t>& indices, uint64_t handle) {
  const auto found = indices.find(handle);
  return found == indices.end() ? kNone : found->second;
}

}  // namespace

void SecondLook::BeginChapter(int64_t time, Before before) {
  texts_.Clear();
  const bool gap = eras_.BeginChapter(before);
  eras_.Reach(time);
  if (!gap) return;
  // As PoolReplay::BeginEra.
  for (const auto& [address, held] : blocks_) {
    const auto pool = pools_.find(held.pool);
    if (pool == pools_.end() || held.era + 1 != eras_.now()) continue;
    pool->second.allocated -= std::min(pool->second.allocated, held.bytes);
  }
}

void SecondLook::Take(int64_t, const recording::PoolMade& entry) {
  HeldPool& pool = pools_[entry.pool];
  pool.channel = {entry.home, entry.channel};
  pool.name = texts_.IndexOf(entry.name);
}

void SecondLook::Take(int64_t time, const recording::PoolGone& entry) {
  ++place_;
  pools_.erase(entry.pool);
  for (const uint64_t address : members_.Take(entry.pool)) blocks_.erase(address);
  Leave(time);
}

void SecondLook::Take(int64_t time, const recording::BlockServed& entry) {
  ++place_;
  const auto pool = pools_.find(entry.pool);
  if (!BeforePeak() || pool == pools_.end()) return;
  const auto [held, fresh] = blocks_.try_emplace(entry.address);
  uint64_t& allocated = pool->second.allocated;
  if (!fresh && held->second.era == eras_.now()) allocated -= std::min(allocated, held->second.bytes);
  if (!fresh) members_.Remove(held->second.pool, entry.address);
  members_.Add(entry.pool, entry.address);
  allocated += entry.bytes;
  held->second = {entry.pool, entry.bytes, texts_.IndexOf(entry.stack), eras_.now()};
  Leave(time);
}

void SecondLook::Take(int64_t time, const recording::BlockFreed& entry) {
  ++place_;
  if (!BeforePeak()) return;
  const auto held = blocks_.find(entry.address);
  if (held != blocks_.end()) {
    const auto pool = pools_.find(held->second.pool);
    if (pool != pools_.end() && held->second.era == eras_.now())
      pool->second.allocated -= std::min(pool->second.allocated, held->second.bytes);
    members_.Remove(held->second.pool, entry.address);
    blocks_.erase(held);
  }
  Leave(time);
}

void SecondLook::Take(int64_t time, const recording::PoolBytes& entry) {
  ++place_;
  const auto pool = pools_.find(entry.pool);
  if (pool != pools_.end()) pool->second.allocated = entry.allocated;
  Leave(time);
}

void SecondLook::Take(int64_t, const recording::SmallBlocks& entry) {
  const auto pool = pools_.find(entry.pool);
  if (pool != pools_.end()) pool->second.cached[entry.bytes] = entry.cached;
}

void SecondLook::Take(int64_t time, const recording::Lost&) {
  eras_.Reach(time);
  eras_.Lose();
}

void SecondLook::Take(int64_t time, const recording::Call& entry) {
  const auto pool = pools_.find(entry.pool);
  if (pool == pools_.end() || calls_->FirstDifference(pool->second.channel) != entry.number) return;
  const Channel channel = pool->second.channel;
  found_calls_[channel] = {report_->ranks[rank_].rank, time, DescribeCall(texts_.TextOf(entry.text), entry.value)};
  pools_of_calls_[channel] = pool->second.name;
}

void SecondLook::Leave(int64_t time) {
  eras_.Reach(time);
  if (place_ == peak_.place) ListHolders();
}

SecondLook::Indices SecondLook::IndicesAtPeak() const {
  Indices indices;
  const std::vector<PoolModel>& pools = report_->ranks[rank_].pools;
  for (uint32_t pool = 0; pool < pools.size(); ++pool) {
    const bool lived = pools[pool].from <= peak_.time && (pools[pool].to == kUnknown || pools[pool].to >= peak_.time);
    if (lived) indices.try_emplace(pools[pool].handle, pool);
  }
  return indices;
}

void SecondLook::ListStacks(const Indices& indices, std::map<uint64_t, uint64_t>& listed) {
  std::map<PoolAndStack, HolderModel> holders;
  for (const auto& [address, held] : blocks_) {
    if (held.era != eras_.now() || !pools_.contains(held.pool)) continue;
    HolderModel& holder = holders[{held.pool, held.stack}];
    holder.bytes += held.bytes;
    ++holder.blocks;
    listed[held.pool] += held.bytes;
  }
  for (auto& [key, holder] : holders) {
    holder.pool = IndexOf(indices, key.first);
    holder.stack = key.second;
    const std::string& stack = report_->texts[key.second];
    holder.what = stack.empty() ? "no stack was recorded" : stack.substr(0, stack.find('\n'));
    model().holders.push_back(std::move(holder));
  }
}

void SecondLook::ListSmallBlocks(const Indices& indices, const std::map<uint64_t, uint64_t>& listed) {
  for (const auto& [handle, pool] : pools_) {
    const uint32_t index = IndexOf(indices, handle);
    const auto found = listed.find(handle);
    const uint64_t known = found == listed.end() ? 0 : found->second;
    if (pool.allocated > known) {
      model().holders.push_back(
          {index, pool.allocated - known, -1, kNoText, "small blocks that threads' caches served"});
    }
    for (const auto& [bytes, blocks] : pool.cached) {
      if (blocks == 0 || bytes == 0 || blocks > kGiB * kGiB / bytes) continue;
      model().holders.push_back({index, blocks * bytes, static_cast<int64_t>(blocks), kNoText,
                                 "free in threads' caches: blocks of " + FormatBytes(bytes)});
    }
  }
}

void SecondLook::ListHolders() {
  std::map<uint64_t, uint64_t> listed;  // bytes by the pool's handle
  const Indices indices = IndicesAtPeak();
  ListStacks(indices, listed);
  ListSmallBlocks(indices, listed);
  blocks_.clear();
  members_ = {};
  std::vector<HolderModel>& holders = model().holders;
  std::stable_sort(holders.begin(), holders.end(),
                   [](const HolderModel& a, const HolderModel& b) { return a.bytes > b.bytes; });
  if (holders.size() <= kMostHolders) return;
  HolderModel rest{.what = "all others"};
  rest.blocks = 0;
  for (size_t holder = kMostHolders; holder < holders.size(); ++holder) {
    rest.bytes += holders[holder].bytes;
    rest.blocks += std::max<int64_t>(holders[holder].blocks, 0);
  }
  holders.resize(kMostHolders);
  holders.push_back(std::move(rest));
}

}  // namespace commpool::internal::report
