#include "tools/common/device_link.h"

namespace commpool::internal {

Link LinkBetween(const Driver& driver, int device, int peer) {
  const auto attribute = [&](CUdevice_P2PAttribute asked) {
    int value = 0;
    const CUresult known = driver.cuda.cuDeviceGetP2PAttribute(&value, asked, device, peer);
    return known == CUDA_SUCCESS ? value : 0;
  };
  if (attribute(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED) == 0) return {};
  const bool atomics = attribute(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) != 0;
  return {atomics ? Link::Kind::kAtomics : Link::Kind::kAccess, attribute(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)};
}

}  // namespace commpool::internal
