// `commpool_stress sweep`: what each constant of expandable pools is worth, on modelled devices, and which values
// would be chosen for a trace by the others. Pure: any thread.
#ifndef COMMPOOL_TOOLS_STRESS_SWEEP_SWEEP_H_
#define COMMPOOL_TOOLS_STRESS_SWEEP_SWEEP_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/engine/size_policy.h"
#include "tools/stress/sweep/modelled_device.h"
#include "tools/traces/trace.h"

namespace commpool::cli {

struct SweepMeasures {
  uint64_t events = 0;
  uint64_t peak_requested_bytes = 0;
  uint64_t peak_reserved_bytes = 0;
  uint64_t driver_calls = 0;
  uint64_t memory_calls = 0;         // of these, what makes, maps, opens and unmaps memory
  uint64_t steady_memory_calls = 0;  // of these, in the second half
  uint64_t host_waits = 0;
  uint64_t device_waits = 0;
  double driver_us = 0;
  double critical_us = 0;  // until host and streams are done
  double ideal_us = 0;     // the same without an allocator

  double utilisation() const;
  // In percent: the memory that was not used, and what the allocator adds to the critical path. A point of memory
  // counts as much as a point of time.
  double cost() const;
};

// One replay in modelled time.
SweepMeasures ReplayModelled(const Trace& trace, const internal::engine::Slack& slack, ModelledWork work);

// The same of a fixed pool.
SweepMeasures ReplayModelledFixed(const Trace& trace, ModelledWork work);

// One constant at one of its values, the others as they are shipped.
struct SweepSetting {
  std::string constant;
  uint64_t share = 0;
  internal::engine::Slack slack;
};

struct SweepTrace {
  std::string name;
  std::vector<std::vector<SweepMeasures>> measures;  // by setting, then by scale
  size_t chosen = 0;                                 // the setting that costs least on all other traces
};

struct Sweep {
  std::vector<double> scales;
  std::vector<SweepSetting> settings;  // the first is what is shipped
  std::vector<SweepTrace> traces;
};

// All traces at 0.93, 1 and 1.31 times their sizes, with each setting. `progress` hears how many replays are done.
Sweep RunSweep(const std::vector<Trace>& traces, const std::function<void(size_t, size_t)>& progress);

nlohmann::json ToJson(const Sweep& sweep);
// To stdout: a line a setting, then a line a trace with what the others chose for it.
void PrintSweep(const Sweep& sweep);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_SWEEP_SWEEP_H_
