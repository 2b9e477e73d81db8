// The emulated driver for runs with host faults: its own calls run Outside, so they never fail.
#ifndef COMMPOOL_TOOLS_STRESS_HOST_HOST_DRIVER_H_
#define COMMPOOL_TOOLS_STRESS_HOST_HOST_DRIVER_H_

#include <memory>

#include "src/library/driver/loader.h"

namespace commpool::cli {

// A table whose functions run `driver`'s functions Outside. One for each process, because functions carry no state.
std::shared_ptr<const internal::Driver> DriverOutside(const std::shared_ptr<const internal::Driver>& driver);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_HOST_HOST_DRIVER_H_
