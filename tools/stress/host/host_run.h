// One run of `commpool_stress host`: the worker program as a process of its own, ended where it takes too long.
//
// Any thread, several runs at a time.
#ifndef COMMPOOL_TOOLS_STRESS_HOST_HOST_RUN_H_
#define COMMPOOL_TOOLS_STRESS_HOST_HOST_RUN_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "commpool/status.h"

namespace commpool::cli {

enum class Findings {
  kPlain,
  kWithPlace,  // the stack of what failed
};

struct HostRun {
  std::string program;   // "fixed"
  std::string resource;  // "allocation"
  uint64_t nth = 0;      // that fails; 0 counts
  Findings findings = Findings::kPlain;
};

// "fixed allocation 17".
std::string Describe(const HostRun& run);

enum class HostEnd {
  kRefused,     // the call that the fault struck failed cleanly, and works when made again
  kServed,      // it worked all the same
  kNotReached,  // fewer were asked for this time
  kBroken,      // books, leaks, or a call that does not work again
  kAborted,
  kCrashed,
  kHung
};

bool IsFailure(HostEnd end);

struct HostOutcome {
  HostEnd end = HostEnd::kBroken;
  uint64_t count = 0;    // of what was asked for
  std::string findings;  // lines: what is wrong, or where the fault struck
};

// Where the worker lies: beside this program. Empty where it is not.
std::string FindHostWorker();

Result<HostOutcome> RunHostWorker(const std::string& worker, const HostRun& run, std::chrono::seconds limit);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_HOST_HOST_RUN_H_
