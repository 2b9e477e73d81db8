// What a fixed pool asks of the rest of the process when its device is out of memory (rule 7), and the error's table.
#ifndef COMMPOOL_SRC_POOL_MEMORY_SEARCH_H_
#define COMMPOOL_SRC_POOL_MEMORY_SEARCH_H_

#include <cstdint>
#include <string>

#include "src/pool/shared_state.h"

namespace commpool::internal {

// Lets the other pools of the device give back what they do not use. Returns the bytes released. The caller holds no
// lock.
uint64_t ReleaseUnusedMemory(const PoolTable& table, int device, const Pool* except);

// A line for each pool of the device: reserved, in use, cached, largest free block. The biggest holder first.
// Then what other allocators of the process say that they hold.
std::string DescribeHolders(SharedState& shared, int device);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_MEMORY_SEARCH_H_
