// The points of the protocol that are calls of the driver and of NCCL: the table of functions that the library gets in
// this program.
#ifndef COMMPOOL_TOOLS_STRESS_RANKS_DRIVER_POINTS_H_
#define COMMPOOL_TOOLS_STRESS_RANKS_DRIVER_POINTS_H_

#include <atomic>
#include <memory>

#include "src/library/driver/loader.h"

namespace commpool::cli::stress_ranks {

// One for each process. Forwards to `driver`.
std::shared_ptr<const internal::Driver> MakeFaultyDriver(const std::shared_ptr<const internal::Driver>& driver);

// Whether a call of the library is inside one of NCCL's collective host calls.
bool IsInsideNccl();

}  // namespace commpool::cli::stress_ranks

#endif  // COMMPOOL_TOOLS_STRESS_RANKS_DRIVER_POINTS_H_
