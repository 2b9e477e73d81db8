// MemorySearch: how the pools of a runtime reach each other: over the table of all pools, when a device is out of
// memory (rule 7), and for destroyed pools. The runtime has one.
#pragma once

#include <string>

#include "src/library/pool/pool.h"

namespace commpool::internal {

// Pools call it through OtherPools, without a lock, because it calls other pools, which take theirs. Runtime owns it;
// it owns nothing. It runs on the thread of the call that asks: an allocation that lacks memory, or the making and the
// end of a pool.
class MemorySearch final : public OtherPools {
 public:
  MemorySearch(const PoolTable& pools, RuntimeParts& runtime) : pools_(pools), runtime_(runtime) {}

  uint64_t ReleaseUnused(int device, const BlockOwner* asks, const std::string& budget) override;
  // Of all pools of the device, for a call that failed outside of commpool (PoolMode::ReleaseIdle).
  uint64_t ReleaseIdle(int device, DeviceWork work);
  void ReleaseDestroyed() override;
  std::string DescribeHolders(int device) override;

 private:
  // The runtime's own.
  const PoolTable& pools_;
  RuntimeParts& runtime_;
};

}  // namespace commpool::internal
