// One run of `commpool_stress host`: the worker program as a process, ended where it takes too long.
//
// Any thread, several runs at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "commpool/status.h"

namespace commpool::cli {

enum class Findings {
  kPlain,
  kWithPlace,  // prints the stack of the failed request
};

struct HostRun {
  std::string program;   // "fixed"
  std::string resource;  // "thread"
  uint64_t nth = 0;      // which request fails; 0 counts
  Findings findings = Findings::kPlain;
};

// Such as "fixed descriptor 17".
std::string Describe(const HostRun& run);

enum class HostEnd {
  kRefused,     // the struck call failed cleanly, and worked when repeated
  kServed,      // the struck call worked all the same
  kNotReached,  // this run made fewer requests
  kBroken,      // books, leaks, or a repeated call are wrong
  kAborted,
  kCrashed,
  kHung
};

bool IsFailure(HostEnd end);

struct HostOutcome {
  HostEnd end = HostEnd::kBroken;
  uint64_t count = 0;    // how many requests there were
  std::string findings;  // lines: violations, or where the fault struck
};

// The path of the worker: beside this program. Empty where it is missing.
std::string FindHostWorker();

Result<HostOutcome> RunHostWorker(const std::string& worker, const HostRun& run, std::chrono::seconds limit);

}  // namespace commpool::cli
