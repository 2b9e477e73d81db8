// What a process of `commpool_stress ranks` reports to the command, one line each, and what the command knows of it in
// the end. Times are nanoseconds of CLOCK_MONOTONIC, one clock for all processes of a machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "tools/stress/ranks/fault.h"

namespace commpool::cli::stress_ranks {

int64_t NowNanoseconds();

// One call of a schedule on one rank.
struct CallRecord {
  int64_t begin_ns = 0;
  std::optional<int64_t> end_ns = {};  // none: the call never returned
  StatusCode code = StatusCode::kOk;
  std::string state = {};  // of the pools after the call: equal on every rank
  std::string message = {};
};

struct FaultRecord {
  Point point = Point::kBetween;
  int64_t at_ns = 0;
};

// The calls of the recovery are numbered from here.
inline constexpr size_t kFirstOfRecovery = 1000;

struct RankRecord {
  std::map<size_t, CallRecord> calls = {};  // by step
  std::vector<FaultRecord> faults = {};
  std::optional<int64_t> aborted_ns = {};  // when its watchdog aborted its communicators
  std::vector<std::string> left = {};      // leaked device memory and objects, and broken rules
  uint64_t moved = 0;                      // pools that moved to a home of the survivors
  bool waits = false;                      // it waits until the command says who is left
  bool complete = false;                   // it reached the end of its program
  std::optional<int> wait_status = {};     // of its process; none: it has not ended
  std::string output = {};                 // stdout and stderr
};

// Reads one line. False for other lines (an id, which goes to the other ranks).
bool Note(const std::string& line, RankRecord& record);

// Lines for Note.
std::string BeginLine(size_t step);
std::string EndLine(size_t step, const Status& status, const std::string& state);
std::string FaultLine(Point point);
std::string AbortLine();
std::string LeftLine(const std::string& what);
std::string MovedLine();
std::string WaitsLine();
std::string CompleteLine();

}  // namespace commpool::cli::stress_ranks
