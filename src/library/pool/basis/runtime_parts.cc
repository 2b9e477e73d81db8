#include "src/library/pool/basis/runtime_parts.h"

namespace commpool::internal {

// Here, and not in the header: each file that includes it would compile the making and the end of every part.
RuntimeParts::RuntimeParts(const Driver& opened, DeviceTable& device_table, OtherPools& other_pools)
    : driver(opened),
      devices(device_table),
      observer(driver, devices.places(), heaps),
      others(other_pools),
      shares(driver),
      shared_caches(std::make_shared<ThreadCaches>(observer)),
      caches(*shared_caches) {}

RuntimeParts::~RuntimeParts() = default;

}  // namespace commpool::internal
