// How runs of every kind begin, what they ask the emulator, and how they end. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/library/driver/loader.h"

namespace commpool::cli {

// kNotSupported where COMMPOOL_DRIVER=cuda asks for GPUs; `why`: the reason why the emulator is needed.
Status CheckEmulated(const std::string& why);
Result<std::shared_ptr<const internal::Driver>> LoadEmulatedDriver(const std::string& why);

// The emulator's reports about a run: leaks, broken rules. `function`: one of extension.h's that write lines. Empty on
// a real driver.
std::vector<std::string> EmulatorLines(const internal::Driver& driver, const char* function);

// How many ranks the schedules have: "4", or "2:8" for a range.
struct RankCounts {
  int least = 2;
  int most = 8;

  // Of a schedule's number alone: it has the same ranks when it runs again by itself.
  int Of(uint64_t number) const { return least + static_cast<int>(number % static_cast<uint64_t>(most - least + 1)); }
};

// kInvalidArgument for any other text, for fewer than 2 ranks and for more than 8.
Result<RankCounts> ParseRanks(const std::string& text);

// The exit code of a run. Prints a line where a fault was planted and the run did not find it.
int Verdict(bool sound, bool planted);

}  // namespace commpool::cli
