// The base of a pool: driver, device, configuration, the names of its messages, and its life. Every part of the pool
// has this, and nothing else of the whole.
#ifndef COMMPOOL_SRC_POOL_BASIS_POOL_BASIS_H_
#define COMMPOOL_SRC_POOL_BASIS_POOL_BASIS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "src/driver/handles.h"
#include "src/pool/basis/pool_life.h"
#include "src/pool/basis/runtime_parts.h"
#include "src/pool/options.h"
#include "src/pool/pool_group.h"
#include "src/pool/shared/device_state.h"

namespace commpool::internal {

// Counts events of a pool where they happen: those of its statistics that no other part knows. Any thread.
struct PoolEvents {
  std::atomic<uint64_t> failed_allocations{0};
  std::atomic<uint64_t> moved_bytes{0};
  std::atomic<uint64_t> host_waits{0};

  static void Count(std::atomic<uint64_t>& event, uint64_t amount = 1) {
    event.fetch_add(amount, std::memory_order_relaxed);
  }
};

struct PoolBasis {
  const Driver& driver;
  RuntimeParts& runtime;
  const std::shared_ptr<DeviceState> device;
  const PoolConfiguration configuration;
  const std::string title;  // "pool gradients (vmm, device 1)"

  // Set once, before anybody else knows the pool.
  PoolHandle handle = 0;
  std::weak_ptr<BlockOwner> owner = {};

  // The pools of one home that the same thread made with it; null where it made this one alone. Joined once.
  std::shared_ptr<const PoolGroup> group = {};

  PoolLife life = {};
  PoolEvents events = {};

  const std::string& name() const { return configuration.name; }
  uint64_t deadline_ms() const { return configuration.deadline_ms; }

  // kFailedPrecondition where it sleeps.
  Status CheckAwake() const { return life.asleep() ? CheckOpen() : Status(); }
  // OK where the pool serves and its device works.
  Status CheckOpen() const {
    const Status open = life.CheckOpen();
    return open.ok() ? device->health().first_error() : Status(open.code(), title + " " + open.message());
  }

  // Out of memory: what others may give back, and who holds what.
  uint64_t ReleaseOtherPools() const { return runtime.others.ReleaseUnused(device->device(), owner.lock().get()); }
  std::string DescribeHolders() const { return runtime.others.DescribeHolders(device->device()); }

  // A failure of the pool, under its title.
  Status Named(const Status& status) const { return status.under(title); }
  // Makes the device's context current.
  ContextGuard MakeCurrent() const { return ContextGuard(driver, device->context()); }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_BASIS_POOL_BASIS_H_
