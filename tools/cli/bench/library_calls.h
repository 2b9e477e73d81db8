// The time of the library's own driver calls, where the driver is measured (DriverTimes::kMeasured). Any thread.
#pragma once

#include <map>
#include <string>

namespace commpool::cli {

// Microseconds of each function in all calls so far; empty where the driver is not measured.
std::map<std::string, double> MicrosecondsByCall();

}  // namespace commpool::cli
