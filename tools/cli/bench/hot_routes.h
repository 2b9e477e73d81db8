// What scopes add to a cached pair: `commpool_allocate`, which looks for a scope, beside `commpool_pool_allocate`,
// which gets the pool, in the same rounds.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "commpool/pool.h"
#include "tools/cli/median.h"

namespace commpool::cli {

// The measured ways to a pool. "none" is the default pool outside every scope.
const std::vector<std::string>& RouteNames();

struct RouteMeasures {  // medians over the rounds, in nanoseconds
  double pair_ns = 0;
  double by_name_ns = 0;
  Spread added_ns;      // of the rounds' differences
  double scope_ns = 0;  // the innermost scope's begin and end; 0 for "none"
};

struct RouteLoop {
  uint64_t bytes = 0;
  int rounds = 0;
  double round_ns = 0;
};

// By name of the route. The pool and the stream are of the current device.
Result<std::map<std::string, RouteMeasures>> MeasureRoutes(const std::vector<std::string>& routes, const Pool& pool,
                                                           CUstream stream, const RouteLoop& loop);

}  // namespace commpool::cli
