#include "src/emulator/cuda/async_memory.h"

#include <cstdio>
#include <utility>

#include "src/emulator/cuda/latency.h"
#include "src/emulator/cuda/machine.h"
#include "src/emulator/cuda/physical.h"
#include "src/library/base/check.h"

namespace commpool::internal::emulator {

namespace {

// Holes stay between allocations, so a pool needs more addresses than it has memory.
constexpr uint64_t kRoomToSpread = 2;
constexpr const char* kAllocationKind = "stream-ordered memory";
constexpr const char* kPoolKind = "memory pool";

// The leak report knows resources by a pointer.
const void* Identity(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

std::string Describe(CUdeviceptr address, uint64_t bytes) {
  char text[80];
  std::snprintf(text, sizeof(text), "0x%llx of %llu bytes", static_cast<unsigned long long>(address),
                static_cast<unsigned long long>(bytes));
  return text;
}

std::shared_ptr<Operation> MakeOperation(const char* name) {
  auto operation = std::make_shared<Operation>();
  operation->name = name;
  return operation;
}

bool IsOver(const Operation& operation) { return operation.state == Operation::State::kDone; }

}  // namespace

bool AsyncMemory::IsPool(CUmemoryPool pool) const {
  const auto found = pools_.find(pool);
  return found != pools_.end() && !found->second->destroyed;
}

CUmemoryPool AsyncMemory::Add(int device, uint64_t limit) {
  const uint64_t span = machine_.description.device_bytes() * kRoomToSpread + AsyncPool::kStep;
  auto pool = std::make_unique<CUmemPoolHandle_st>(device, span, limit);
  pool->accessible.insert(device);
  CUmemoryPool const handle = pool.get();
  pools_.emplace(handle, std::move(pool));
  return handle;
}

CUmemoryPool AsyncMemory::DefaultOf(int device) {
  CUmemoryPool& pool = defaults_[device];
  if (pool == nullptr) pool = Add(device, std::numeric_limits<uint64_t>::max());
  return pool;
}

CUmemoryPool AsyncMemory::CurrentOf(int device) {
  const auto current = current_.find(device);
  return current == current_.end() ? DefaultOf(device) : current->second;
}

CUmemoryPool AsyncMemory::Create(int device, CUmemAllocationHandleType handle_types, uint64_t limit) {
  CUmemoryPool const pool = Add(device, limit);
  pool->handle_types = handle_types;
  machine_.logbook.Note(kPoolKind, pool, "of device " + std::to_string(device));
  return pool;
}

CUresult AsyncMemory::Destroy(CUmemoryPool pool) {
  const auto its_default = defaults_.find(pool->device);
  if (its_default != defaults_.end() && its_default->second == pool) return CUDA_ERROR_INVALID_VALUE;
  const auto current = current_.find(pool->device);
  if (current != current_.end() && current->second == pool) current_.erase(current);
  pool->destroyed = true;
  machine_.logbook.Forget(kPoolKind, pool);
  Trim(pool, 0);
  RemoveIfUnused(pool);
  return CUDA_SUCCESS;
}

void AsyncMemory::RemoveIfUnused(CUmemoryPool pool) {
  if (!pool->destroyed || pool->decisions.live() != 0 || pool->decisions.reserved.current != 0) return;
  if (pool->base != 0) {
    machine_.addresses.FreeOfPool(pool->base);
    bases_.erase(pool->base);
  }
  pools_.erase(pool);
}

void AsyncMemory::SetAccess(CUmemoryPool pool, int device, bool granted) {
  const auto change = [&](std::set<int>& devices) {
    if (granted) {
      devices.insert(device);
    } else {
      devices.erase(device);
    }
  };
  change(pool->accessible);
  if (pool->base == 0) return;
  uint64_t bytes = 0;
  const std::vector<MappedRange*> mappings = machine_.addresses.Touching(pool->base, pool->decisions.span());
  for (MappedRange* mapping : mappings) {
    change(mapping->devices);
    bytes += mapping->bytes;
  }
  machine_.scheduler.host_time_us += AccessLatency(mappings.size(), 1, bytes);
}

CUresult AsyncMemory::Grow(CUmemoryPool pool, const std::vector<AsyncExtent>& growth) {
  if (pool->base == 0) {
    const CUresult reserved = machine_.addresses.ReserveForPool(pool->decisions.span(), AsyncPool::kStep, &pool->base);
    if (reserved != CUDA_SUCCESS) return reserved;
    bases_[pool->base] = pool;
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pool->device};
  std::vector<AsyncExtent> made;
  CUresult result = CUDA_SUCCESS;
  for (const AsyncExtent& extent : growth) {
    for (uint64_t step = 0; result == CUDA_SUCCESS && step < extent.bytes; step += AsyncPool::kStep) {
      std::shared_ptr<Physical> physical;
      result = MakePhysical(machine_, AsyncPool::kStep, properties, &physical);
      if (result != CUDA_SUCCESS) break;
      const AsyncExtent next{extent.offset + step, AsyncPool::kStep};
      result = machine_.addresses.Map(pool->base + next.offset, next.bytes, std::move(physical));
      COMMPOOL_CHECK(result == CUDA_SUCCESS, "a pool grows where it has grown before");
      MappedRange& mapping = *machine_.addresses.Find(pool->base + next.offset);
      mapping.of_pool = true;
      mapping.devices = pool->accessible;
      made.push_back(next);
    }
    if (result != CUDA_SUCCESS) break;
    for (const char* call : {"cuMemCreate", "cuMemMap"}) {
      machine_.scheduler.host_time_us += LatencyOf(call, extent.bytes);
    }
    machine_.scheduler.host_time_us += AccessLatency(1, 1, extent.bytes);
  }
  if (result != CUDA_SUCCESS) {
    for (const AsyncExtent& extent : made) GiveBack(pool, extent);
  }
  return result;
}

void AsyncMemory::GiveBack(CUmemoryPool pool, const AsyncExtent& extent) {
  const CUdeviceptr address = pool->base + extent.offset;
  const bool running = machine_.scheduler.IsRunningOn(address, extent.bytes);
  machine_.addresses.Unmap(address, extent.bytes,
                           running ? AddressSpace::Leave::kScrap : AddressSpace::Leave::kNothing);
}

// Virtual time decides, so the speed of this machine changes nothing.
bool AsyncMemory::IsDone(const StreamPoint& point) const {
  return IsOver(*point.operation) && point.operation->end_us <= machine_.scheduler.host_time_us;
}

CUresult AsyncMemory::Allocate(CUmemoryPool pool, uint64_t bytes, CUstream_st* stream, CUdeviceptr* address) {
  const StreamReach reach = machine_.scheduler.ReachOf(stream);
  const auto relate = [&](const StreamPoint& point) {
    if (point.stream == stream->id) return Order::kOwnStream;
    const bool ordered = pool->decisions.policies.follow_events && reach.Covers(point.stream, point.sequence);
    if (ordered) return Order::kBehindEvents;
    return IsDone(point) ? Order::kDone : Order::kNone;
  };
  std::optional<AsyncPool::Plan> plan = pool->decisions.Find(bytes, relate);
  CUresult result = plan ? Grow(pool, plan->growth) : CUDA_ERROR_OUT_OF_MEMORY;
  if (plan && result == CUDA_ERROR_OUT_OF_MEMORY) {
    for (const auto& [other, owned] : pools_) {
      if (other->device == pool->device) Trim(other, 0);
    }
    plan = pool->decisions.Find(bytes, relate);
    result = plan ? Grow(pool, plan->growth) : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    plan = pool->decisions.FindDepending(bytes, relate);
    if (plan) result = CUDA_SUCCESS;
  }
  if (result != CUDA_SUCCESS) return result;
  pool->decisions.Take(*plan);
  *address = pool->base + plan->place.offset;
  const std::shared_ptr<Operation> operation = MakeOperation("stream-ordered allocation");
  operation->after = plan->after;
  machine_.scheduler.Submit(stream, operation);
  pool->allocations[*address] = StreamPoint{stream->id, operation->sequence, operation};
  machine_.logbook.Note(kAllocationKind, Identity(*address), Describe(*address, bytes));
  return CUDA_SUCCESS;
}

void AsyncMemory::Freed(CUmemoryPool pool, CUdeviceptr address, const char* call) {
  const std::optional<AsyncExtent> extent = pool->decisions.LiveAt(address - pool->base);
  if (const std::optional<std::string> holder = machine_.logbook.HolderOf(address, extent->bytes)) {
    machine_.logbook.Report("memory unmapped while registered", std::string(call) + " while held by " + *holder);
  }
  machine_.logbook.Forget(kAllocationKind, Identity(address));
  pool->allocations.erase(address);
}

CUresult AsyncMemory::FreeAsync(CUdeviceptr address, CUstream_st* stream) {
  CUmemoryPool const pool = Holding(address);
  if (pool == nullptr || !pool->allocations.contains(address)) return CUDA_ERROR_INVALID_VALUE;
  Freed(pool, address, "cuMemFreeAsync");
  const std::shared_ptr<Operation> operation = MakeOperation("stream-ordered free");
  machine_.scheduler.Submit(stream, operation);
  pool->decisions.Free(address - pool->base, StreamPoint{stream->id, operation->sequence, operation});
  return CUDA_SUCCESS;
}

CUresult AsyncMemory::Free(CUdeviceptr address) {
  const std::optional<Allocation> allocation = Find(address);
  if (!allocation || allocation->address != address) return CUDA_ERROR_INVALID_VALUE;
  CUmemoryPool const pool = allocation->pool;
  if (const char* name = machine_.scheduler.PendingUse(address, allocation->bytes)) {
    machine_.logbook.Report("memory in use", std::string("cuMemFree while ") + name + " is still to run on it");
  }
  Freed(pool, address, "cuMemFree");
  pool->decisions.Free(address - pool->base, std::nullopt);
  Settle([](const StreamPoint&) { return false; });
  return CUDA_SUCCESS;
}

CUmemoryPool AsyncMemory::Holding(CUdeviceptr address) const {
  auto after = bases_.upper_bound(address);
  if (after == bases_.begin()) return nullptr;
  --after;
  return address - after->first < after->second->decisions.span() ? after->second : nullptr;
}

std::optional<AsyncMemory::Allocation> AsyncMemory::Find(CUdeviceptr address) const {
  CUmemoryPool const pool = Holding(address);
  if (pool == nullptr) return std::nullopt;
  const std::optional<AsyncExtent> live = pool->decisions.LiveAt(address - pool->base);
  if (!live || !pool->allocations.contains(pool->base + live->offset)) return std::nullopt;
  return Allocation{pool, pool->base + live->offset, live->bytes};
}

void AsyncMemory::Trim(CUmemoryPool pool, uint64_t keep) {
  uint64_t bytes = 0;
  for (const AsyncExtent& extent : pool->decisions.Release(keep)) {
    GiveBack(pool, extent);
    bytes += extent.bytes;
  }
  if (bytes == 0) return;
  for (const char* call : {"cuMemUnmap", "cuMemRelease"}) {
    machine_.scheduler.host_time_us += LatencyOf(call, bytes);
  }
}

void AsyncMemory::HostWaitedFor(const StreamReach& reach) {
  Settle([&](const StreamPoint& point) { return reach.Covers(point.stream, point.sequence); });
}

void AsyncMemory::HostWaitedForDevice(int device) {
  Settle([&](const StreamPoint& point) { return point.operation->device == device && IsOver(*point.operation); });
}

void AsyncMemory::Settle(const std::function<bool(const StreamPoint&)>& waited_for) {
  for (auto next = pools_.begin(); next != pools_.end();) {
    CUmemoryPool const pool = next++->first;  // erasing it leaves the other iterators valid
    pool->decisions.Settle(waited_for);
    Trim(pool, pool->destroyed ? 0 : pool->decisions.release_threshold);
    RemoveIfUnused(pool);
  }
}

void AsyncMemory::CheckLife(const Operation& operation) {
  if (bases_.empty()) return;
  for (const auto* ranges : {&operation.reads, &operation.writes}) {
    for (const commpoolEmulatorRange& range : *ranges) {
      if (Holding(range.address) == nullptr) continue;
      const std::optional<Allocation> allocation = Find(range.address);
      const char* problem = nullptr;
      if (!allocation) {
        problem = "which is not allocated, or was freed before";
      } else if (range.address - allocation->address + range.bytes > allocation->bytes) {
        problem = "which runs past the end of its allocation";
      } else {
        const StreamPoint& made = allocation->pool->allocations.at(allocation->address);
        const bool ordered = IsOver(*made.operation) || operation.reach.Covers(made.stream, made.sequence);
        if (!ordered) problem = "but is not ordered behind its allocation";
      }
      if (problem == nullptr) continue;
      machine_.logbook.Report("use of stream-ordered memory outside its life",
                              operation.name + " uses " + Describe(range.address, range.bytes) + ", " + problem);
    }
  }
}

}  // namespace commpool::internal::emulator
