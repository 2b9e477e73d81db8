// `commpool_stress sweep`: what each constant of expandable pools is worth on modelled devices, and which value the
// other traces would choose for a trace. Pure: any thread.
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
  uint64_t memory_calls = 0;         // of these, the calls that make, map, open and unmap memory
  uint64_t steady_memory_calls = 0;  // of these, in the second half
  uint64_t host_waits = 0;
  uint64_t device_waits = 0;
  double driver_us = 0;
  double critical_us = 0;  // until host and streams are done
  double ideal_us = 0;     // the same without an allocator

  double utilisation() const;
  // In percent: unused memory, plus what the allocator adds to the critical path. A point of memory counts as much as a
  // point of time.
  double cost() const;
};

// Replays once in modelled time.
SweepMeasures ReplayModelled(const Trace& trace, const internal::engine::Slack& slack, ModelledWork work);

// The same with a fixed pool.
SweepMeasures ReplayModelledFixed(const Trace& trace, ModelledWork work);

// One constant with one of its values; the other constants as shipped.
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
  std::vector<SweepSetting> settings;  // the first is the shipped one
  std::vector<SweepTrace> traces;
};

// All traces at 0.93, 1 and 1.31 times their sizes, with each setting. `progress` gets the number of finished replays.
Sweep RunSweep(const std::vector<Trace>& traces, const std::function<void(size_t, size_t)>& progress);

nlohmann::json ToJson(const Sweep& sweep);
// Prints a line for each setting, then a line for each trace with the choice of the other traces.
void PrintSweep(const Sweep& sweep);

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_SWEEP_SWEEP_H_
