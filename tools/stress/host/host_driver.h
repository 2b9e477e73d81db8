// The emulated driver as the library sees it under planned host faults: its calls run Outside.
#ifndef COMMPOOL_TOOLS_STRESS_HOST_HOST_DRIVER_H_
#define COMMPOOL_TOOLS_STRESS_HOST_HOST_DRIVER_H_

#include <memory>

#include "src/driver/loader.h"

namespace commpool::cli {

// A table whose functions leave the library and call `driver`'s. One a process: functions carry no state.
std::shared_ptr<const internal::Driver> DriverOutside(const std::shared_ptr<const internal::Driver>& driver);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_HOST_HOST_DRIVER_H_
