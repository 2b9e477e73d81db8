// How long the library's own driver calls took, where the driver is measured (DriverTimes::kMeasured). Any thread.
#ifndef COMMPOOL_TOOLS_CLI_BENCH_LIBRARY_CALLS_H_
#define COMMPOOL_TOOLS_CLI_BENCH_LIBRARY_CALLS_H_

#include <map>
#include <string>

namespace commpool::cli {

// Microseconds by call, of all since the driver is measured; empty where it is not.
std::map<std::string, double> MicrosecondsByCall();

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_CLI_BENCH_LIBRARY_CALLS_H_
