// A device in modelled time: the streams of a trace, what their work takes, and what the driver's calls take.
//
// The host's clock and each stream's end are numbers. Work begins when it was issued, its stream is free and what it
// waits for is over. Two kinds of work: of durations that follow from the blocks' bytes, with a host that runs ahead;
// or of `commpool replay`, where a block is in use until the next event on its stream begins (time then counts events).
// One thread.
#ifndef COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_DEVICE_H_
#define COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_DEVICE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "tools/traces/trace.h"

namespace commpool::cli {

enum class ModelledWork {
  kTimed,           // durations by bytes
  kUntilNextEvent,  // as `commpool replay` holds it
};

class ModelledDevice {
 public:
  ModelledDevice(const Trace& trace, ModelledWork work);

  // The event is the next one: the host has come to it.
  void Begin(size_t index);
  // The work that uses the block which that event allocated. Two streams use a half each, the second behind what the
  // first has done so far.
  void Launch(const TraceEvent& event);

  // A mark behind all work of the stream so far, and whether that is over.
  struct Mark {
    double end = 0;
    double made = 0;
  };
  Mark Record(uint32_t stream) const { return {ends_[stream], now_}; }
  bool IsOver(const Mark& mark) const { return mark.end <= now_ || mark.made <= released_; }
  double End(uint32_t stream) const { return ends_[stream]; }
  // The stream's next work begins no earlier.
  void MakeWait(uint32_t stream, double time);
  // The host waits for all work. Held work ends then.
  void WaitForAll();
  // The host waits before it asks again. Held work ends where it waits for too long in all.
  void Wait(double microseconds, double in_all);

  // A call of the driver, which takes as long as the emulator's.
  void Call(const char* name, uint64_t bytes = 0);
  // cuMemSetAccess, which takes longer the more pages there are.
  void Open(size_t pages, uint64_t bytes);
  // cuMemUnmap of pages in a row: one call, which takes as long as one for each.
  void Unmap(size_t pages, uint64_t bytes);
  uint64_t calls() const { return calls_; }
  // Those that make, map, open and unmap memory: the others order the work of streams.
  uint64_t memory_calls() const { return memory_calls_; }
  double driver_us() const { return driver_us_; }

  // When everything is over: the critical path through host and streams.
  double Finish() const;
  uint64_t streams() const { return ends_.size(); }

 private:
  void Spend(const char* call, double microseconds);
  // One stream's part.
  void LaunchOn(uint32_t stream, uint64_t bytes, const std::vector<uint32_t>& next_event);

  const ModelledWork work_;
  double now_ = 0;
  double released_ = -1;  // when held work was last let go
  size_t index_ = 0;
  std::vector<double> ends_;                // by stream
  std::vector<std::deque<double>> queues_;  // of timed work: when the last operations end
  std::vector<uint32_t> next_event_;        // of held work: by event, the next on its stream
  std::vector<uint32_t> next_of_other_;     // likewise, on the second stream of an allocation
  uint64_t calls_ = 0;
  uint64_t memory_calls_ = 0;
  double driver_us_ = 0;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_DEVICE_H_
