#include "tools/cli/replay/pool_allocator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/library/base/try.h"

namespace commpool::cli {

namespace {

// More entries than the library has functions of the driver.
using CallTable = std::array<commpool_driver_call, 128>;

size_t ReadCalls(CallTable& table) {
  size_t count = 0;
  if (commpool_driver_calls(table.data(), sizeof(table[0]), table.size(), &count) != COMMPOOL_OK) return 0;
  return std::min(count, table.size());
}

}  // namespace

DriverCallsByName Difference(const DriverCallsByName& later, const DriverCallsByName& earlier) {
  DriverCallsByName calls;
  for (const auto& [name, now] : later) {
    const auto before = earlier.find(name);
    const DriverCalls base = before == earlier.end() ? DriverCalls() : before->second;
    if (now.count == base.count) continue;
    calls[name] = {now.count - base.count, now.microseconds - base.microseconds};
  }
  return calls;
}

DriverCalls Sum(const DriverCallsByName& calls) {
  DriverCalls sum;
  for (const auto& [name, call] : calls) {
    sum.count += call.count;
    sum.microseconds += call.microseconds;
  }
  return sum;
}

Result<std::unique_ptr<PoolAllocator>> PoolAllocator::Create(SoloDevice& device, const PoolChoice& choice) {
  PoolOptions options = {.name = "replay", .backing = choice.backing, .streams = choice.streams};
  if (choice.mode == ReplayMode::kExpandable) options.mode = Mode::kExpandable;
  if (choice.mode == ReplayMode::kSymmetric) {
    options.symmetric_across = COMMPOOL_TRY(device.Communicator());
    options.frees = Frees::kOrdered;
  }
  Pool pool = COMMPOOL_TRY(Pool::create(options));
  std::unique_ptr<PoolAllocator> allocator(
      new PoolAllocator(std::move(pool), choice, device.emulated() ? 0 : kLeastDriverNs));
  allocator->CalledDriver(UINT64_MAX);  // the driver calls of creation do not count
  return allocator;
}

Status PoolAllocator::Prepare(uint64_t peak_requested_bytes) {
  if (choice_.mode != ReplayMode::kSymmetric) return Status();
  return pool_.reserve(choice_.reserve_bytes == 0 ? peak_requested_bytes : choice_.reserve_bytes);
}

void* PoolAllocator::Allocate(uint64_t bytes, CUstream stream) {
  void* block = nullptr;
  const commpool_status status = commpool_pool_allocate(pool_.handle(), bytes, stream, &block);
  if (status != COMMPOOL_OK) failed_ = static_cast<StatusCode>(status);
  return status == COMMPOOL_OK ? block : nullptr;
}

Status PoolAllocator::MakeRoom(uint64_t bytes) {
  if (failed_ != StatusCode::kExhausted) return failure();
  Status status = pool_.reclaim().status();
  if (status.ok()) status = pool_.reserve(bytes);
  if (status.ok()) ++reserves_;
  return status;
}

bool PoolAllocator::CalledDriver(uint64_t ns) {
  if (ns < least_driver_ns_) return false;
  CallTable table;
  const size_t size = ReadCalls(table);
  uint64_t calls = 0;
  for (size_t index = 0; index < size; ++index) calls += table[index].count;
  return std::exchange(calls_seen_, calls) != calls;
}

DriverCallsByName PoolAllocator::Calls() const {
  CallTable table;
  const size_t size = ReadCalls(table);
  DriverCallsByName calls;
  for (size_t index = 0; index < size; ++index) {
    calls[table[index].name] = {table[index].count, table[index].microseconds};
  }
  return calls;
}

ReplayedAllocator::Costs PoolAllocator::costs() const {
  Result<Statistics> statistics = pool_.stats();
  if (!statistics.ok()) return {.reserves = reserves_};
  return {.waits = statistics->host_waits, .moved_bytes = statistics->moved_bytes, .reserves = reserves_};
}

}  // namespace commpool::cli
