#include "src/interpose/nccl_memory/pooled_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "src/interpose/nccl_memory/pool_library.h"
#include "src/interpose/preload/process_name.h"
#include "src/interpose/preload/settings_text.h"

namespace commpool::run {

namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;
// Smaller requests share the segments of a pool.
constexpr uint64_t kOwnSegment = uint64_t{4} << 20;

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

const Settings& Settings::Get() {
  static const auto* const settings = new Settings(FromText(std::getenv("COMMPOOL_RUN")));
  return *settings;
}

Settings Settings::FromText(const char* text) {
  Settings settings;
  settings.asked = text != nullptr;
  for (const auto& [key, value] : preload::ReadSettings(text)) {
    if (key == "nccl-memory" && value == "pools") settings.nccl_memory = NcclMemory::kPools;
    if (key == "backing") settings.backing = static_cast<commpool_backing>(std::atoi(value.c_str()));
    if (key == "process") settings.started_by = std::atoi(value.c_str());
    if (key != "peers") continue;
    settings.all_peers = value == "all";
    std::istringstream devices(settings.all_peers ? "" : value);
    for (int device = 0; devices >> device;) settings.peers.push_back(device);
  }
  return settings;
}

uint64_t SegmentBytes(uint64_t bytes) {
  if (bytes > UINT64_MAX - kGranule) return bytes;  // the pool refuses it
  return bytes < kOwnSegment ? kOwnSegment : (bytes + kGranule - 1) / kGranule * kGranule;
}

commpool_pool PooledMemory::FindPool(const Key& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = pools_.find(key);
  return known == pools_.end() ? 0 : known->second;
}

commpool_status PooledMemory::PoolOf(const Key& key, int devices, commpool_pool* pool) {
  *pool = FindPool(key);
  if (*pool != 0) return COMMPOOL_OK;
  std::vector<int> peers = settings_.peers;
  for (int device = 0; settings_.all_peers && device < devices; ++device) peers.push_back(device);
  std::erase(peers, key.first);
  commpool_pool_options options;
  commpool_pool_options_init(&options);
  options.name = "ncclMemAlloc";
  options.device = key.first;
  options.backing = settings_.backing;
  options.mode = COMMPOOL_MODE_FIXED;
  options.segment_bytes = key.second;
  options.peers = peers.data();
  options.peer_count = peers.size();
  options.given = COMMPOOL_OPTION_BACKING | COMMPOOL_OPTION_MODE | COMMPOOL_OPTION_SEGMENT;
  commpool_pool made = 0;
  const commpool_status status = PoolLibrary::Get().pools_create(&options, 1, &made);
  if (status != COMMPOOL_OK) return status;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto [place, ours] = pools_.try_emplace(key, made);
  *pool = place->second;
  lock.unlock();
  return ours ? COMMPOOL_OK : PoolLibrary::Get().pool_destroy(made);  // another thread was first
}

commpool_status PooledMemory::Allocate(int device, int devices, uint64_t bytes, void** pointer) {
  const uint64_t segment = SegmentBytes(bytes);
  commpool_pool pool = 0;
  commpool_status status = PoolOf({device, segment}, devices, &pool);
  if (status == COMMPOOL_OK) status = PoolLibrary::Get().pool_allocate(pool, segment, nullptr, pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  ++calls_;
  if (status != COMMPOOL_OK) return status;
  live_.insert(*pointer);
  const char* const begin = static_cast<const char*>(*pointer);
  const char*& end = served_[begin];
  end = std::max(end, begin + segment);
  return status;
}

// Ranges may overlap, for addresses come again in other sizes.
bool PooledMemory::WasServed(const void* pointer) const {
  return std::any_of(served_.begin(), served_.upper_bound(static_cast<const char*>(pointer)),
                     [&](const auto& range) { return pointer < range.second; });
}

commpool_status PooledMemory::Free(void* pointer) {
  // A child forked in the midst has the addresses of its parent's memory, and no driver.
  if (preload::IsForked()) return COMMPOOL_INVALID_ARGUMENT;
  std::unique_lock<std::mutex> lock(mutex_);
  const bool live = live_.erase(pointer) != 0;
  if (!live && WasServed(pointer)) return COMMPOOL_INVALID_ARGUMENT;
  lock.unlock();
  if (live) return PoolLibrary::Get().free(pointer);
  // The program may have pools of its own.
  commpool_block block;
  const auto block_of = PoolLibrary::Get().block_of;
  const bool pooled = block_of != nullptr && block_of(pointer, &block, sizeof(block)) == COMMPOOL_OK;
  return pooled ? COMMPOOL_INVALID_ARGUMENT : COMMPOOL_NOT_FOUND;
}

uint64_t PooledMemory::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

std::string PooledMemory::Statistics() const {
  std::map<Key, commpool_pool> pools;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pools = pools_;
  }
  std::array<char, 160> line;
  std::snprintf(line.data(), line.size(), "  %6s %12s %9s %9s %9s %9s %12s\n", "device", "MiB each", "served", "made",
                "now", "at peak", "MiB held");
  std::string text = line.data();
  for (const auto& [key, pool] : pools) {
    commpool_statistics statistics;
    commpool_statistics_init(&statistics);
    if (PoolLibrary::Get().pool_statistics(pool, COMMPOOL_PEAKS_STAY, &statistics) != COMMPOOL_OK) continue;
    const auto count = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    std::snprintf(line.data(), line.size(), "  %6d %12.1f %9llu %9llu %9llu %9llu %12.1f\n", key.first, MiB(key.second),
                  count(statistics.allocated_blocks.total), count(statistics.reserved_segments.total),
                  count(statistics.allocated_blocks.current), count(statistics.allocated_blocks.peak),
                  MiB(statistics.reserved_bytes.current));
    text += line.data();
  }
  return text;
}

}  // namespace commpool::run
