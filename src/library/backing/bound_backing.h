// Memory of the host that the process maps, binds to a NUMA node, and registers with CUDA: for places where the driver
// makes none by itself. It has no handles, so no other process imports it, and every device of the process may use it.
#pragma once

#include <memory>
#include <string>

#include "src/library/backing/backing.h"

namespace commpool::internal {

// Why no access to pinned memory can be taken back, for a backing's row.
inline constexpr const char* kPinnedForAll = "every device of the process may use pinned memory of the host";

// `why`: what the driver said where a better rung was asked for. kInvalidArgument where the host has no such node;
// kNotSupported where kernel or driver refuse such memory too. REQUIRES: the placement names a node.
Result<std::unique_ptr<Backing>> MakeBoundBacking(const BackingRow& row, const BackingBasis& basis,
                                                  uint64_t granularity, const std::string& why);

}  // namespace commpool::internal
