// Calls for several symmetric pools of a rank, of one home and one device: they agree in the same rounds, and all go on
// or none. The failure is that of the first pool that does not.
#ifndef COMMPOOL_SRC_POOL_SYMMETRIC_SEVERAL_POOLS_H_
#define COMMPOOL_SRC_POOL_SYMMETRIC_SEVERAL_POOLS_H_

#include <cstdint>
#include <vector>

#include "commpool/status.h"
#include "src/base/host_reserve.h"

namespace commpool::internal {

class SymmetricMode;
using SymmetricModes = ReservedVector<SymmetricMode*>;

Status ReserveTogether(const SymmetricModes& pools, uint64_t bytes);
// What each reclaimed.
Result<std::vector<uint64_t>> ReclaimTogether(const SymmetricModes& pools);
Status VerifyTogether(const SymmetricModes& pools);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SYMMETRIC_SEVERAL_POOLS_H_
