// What a pool stands on, the same for its whole life: driver, device, configuration, and the names of its messages.
#ifndef COMMPOOL_SRC_POOL_POOL_BASIS_H_
#define COMMPOOL_SRC_POOL_POOL_BASIS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "src/driver/handles.h"
#include "src/pool/options.h"
#include "src/pool/runtime_parts.h"
#include "src/pool/shared/device_state.h"

namespace commpool::internal {

struct PoolBasis {
  const Driver& driver;
  RuntimeParts& runtime;
  const std::shared_ptr<DeviceState> device;
  const PoolConfiguration configuration;
  const std::string title;  // "pool gradients (vmm, device 1)"

  // Set once, before anybody else knows the pool.
  PoolHandle handle = 0;
  std::weak_ptr<BlockOwner> owner = {};

  const std::string& name() const { return configuration.name; }
  uint64_t deadline_ms() const { return configuration.deadline_ms; }

  // A failure of the pool, under its title.
  Status Named(const Status& status) const { return status.under(title); }
  // Makes the device's context current.
  ContextGuard MakeCurrent() const { return ContextGuard(driver, device->context()); }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_POOL_BASIS_H_
