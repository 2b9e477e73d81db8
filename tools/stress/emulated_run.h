// What runs of every kind begin with, ask the emulator, and end with. Any thread.
#ifndef COMMPOOL_TOOLS_STRESS_EMULATED_RUN_H_
#define COMMPOOL_TOOLS_STRESS_EMULATED_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/driver/loader.h"

namespace commpool::cli {

// kNotSupported where COMMPOOL_DRIVER=cuda asks for GPUs; `why` says what the emulator is needed for.
Status CheckEmulated(const std::string& why);
Result<std::shared_ptr<const internal::Driver>> LoadEmulatedDriver(const std::string& why);

// What the emulator has to say of a run: leaks, broken rules. `function` is one of extension.h's that write lines. None
// where the driver is not emulated.
std::vector<std::string> EmulatorLines(const internal::Driver& driver, const char* function);

// How many ranks the schedules have: "4", or "2:8".
struct RankCounts {
  int least = 2;
  int most = 8;
};

// kInvalidArgument for a text that is neither, and for fewer ranks than 2 or more than 8.
Result<RankCounts> ParseRanks(const std::string& text);

// The exit code of a run; says so where it found nothing, and a fault was planted.
int Verdict(bool sound, bool planted);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_EMULATED_RUN_H_
