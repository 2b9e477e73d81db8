// A pool in a program of `commpool_stress ranks`.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <vector>

#include "src/library/pool/runtime.h"

namespace commpool::cli::stress_ranks {

struct PoolInUse {
  internal::PoolHandle handle = 0;
  std::shared_ptr<internal::Pool> pool;  // null before its creation, or where that failed
  std::vector<CUdeviceptr> blocks;       // in the order of allocation; 0 where freed or not served
};

// The state that must be equal on all ranks.
std::string StateOf(const std::vector<PoolInUse>& pools);

}  // namespace commpool::cli::stress_ranks
