// The time of the library's own driver calls, where the driver is measured (DriverTimes::kMeasured). Any thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_LIBRARY_CALLS_H_
#define COMMPOOL_TOOLS_CLI_BENCH_LIBRARY_CALLS_H_

#include <map>
#include <string>

namespace commpool::cli {

// Microseconds of each function in all calls so far; empty where the driver is not measured.
std::map<std::string, double> MicrosecondsByCall();

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_LIBRARY_CALLS_H_
