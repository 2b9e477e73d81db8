// The points of the protocol that are calls of the driver and of NCCL: the table of functions that the library gets in
// this program.
#pragma once

#include <atomic>
#include <memory>

#include "src/library/driver/loader.h"

namespace commpool::cli::stress_ranks {

// One for each process. Forwards to `driver`.
std::shared_ptr<const internal::Driver> MakeFaultyDriver(const std::shared_ptr<const internal::Driver>& driver);

// Whether a call of the library is inside one of NCCL's collective host calls.
bool IsInsideNccl();

}  // namespace commpool::cli::stress_ranks
