// The emulated driver for runs with host faults: its own calls run Outside, so they never fail.
#pragma once

#include <memory>

#include "src/library/driver/loader.h"

namespace commpool::cli {

// A table whose functions run `driver`'s functions Outside. One for each process, because functions carry no state.
std::shared_ptr<const internal::Driver> DriverOutside(const std::shared_ptr<const internal::Driver>& driver);

}  // namespace commpool::cli
