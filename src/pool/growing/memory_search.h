// What a growing pool asks of the rest of the process when its device is out of memory (rule 7), and the error's table.
#ifndef COMMPOOL_SRC_POOL_GROWING_MEMORY_SEARCH_H_
#define COMMPOOL_SRC_POOL_GROWING_MEMORY_SEARCH_H_

#include <cstdint>
#include <string>

#include "src/pool/pool_basis.h"

namespace commpool::internal {

// Lets the other pools of the device give back what they do not use. Returns the bytes released. The caller holds no
// lock.
uint64_t ReleaseOtherPools(const PoolBasis& pool);

// A line for each pool of the device: reserved, in use, cached, largest free block. The biggest holder first.
// Then what other allocators of the process say that they hold.
std::string DescribeHolders(const PoolBasis& pool);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_GROWING_MEMORY_SEARCH_H_
