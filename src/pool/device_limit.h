// DeviceLimit: how much the pools of a device may reserve together, until the program sets another limit. A value.
#ifndef COMMPOOL_SRC_POOL_DEVICE_LIMIT_H_
#define COMMPOOL_SRC_POOL_DEVICE_LIMIT_H_

#include <algorithm>
#include <cstdint>

namespace commpool::internal {

struct DeviceLimit {
  uint64_t bytes = UINT64_MAX;
  double fraction = 1.0;  // of the device's memory

  // UINT64_MAX: no limit.
  uint64_t For(uint64_t device_bytes) const {
    if (fraction == 1.0) return bytes;
    return std::min(bytes, static_cast<uint64_t>(fraction * static_cast<double>(device_bytes)));
  }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_DEVICE_LIMIT_H_
