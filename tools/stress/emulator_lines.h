// What the emulator has to say of a run: leaks, broken rules. Any thread.
#ifndef COMMPOOL_TOOLS_STRESS_EMULATOR_LINES_H_
#define COMMPOOL_TOOLS_STRESS_EMULATOR_LINES_H_

#include <string>
#include <vector>

#include "src/driver/loader.h"

namespace commpool::cli {

// A line each: `function` is one of extension.h's that write lines. None where the driver is not emulated.
std::vector<std::string> EmulatorLines(const internal::Driver& driver, const char* function);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_EMULATOR_LINES_H_
