// A device in modelled time: the streams of a trace, the time of their work, and the time of driver calls.
//
// The host's clock and each stream's end are numbers. Work begins once it is issued, its stream is free, and its waits
// are over. There are two kinds of work. In one, times follow from the blocks' bytes, and the host runs ahead. The
// other is that of `commpool replay`: a block is in use until the next event on its stream (time then counts events).
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

  // The host reaches the next event.
  void Begin(size_t index);
  // Launches work that uses the block of that allocation. Two streams use one half each; the second waits for what the
  // first has done so far.
  void Launch(const TraceEvent& event);

  // A mark behind all work of the stream so far; tells whether that work is done.
  struct Mark {
    double end = 0;
    double made = 0;
  };
  Mark Record(uint32_t stream) const { return {ends_[stream], now_}; }
  bool IsOver(const Mark& mark) const { return mark.end <= now_ || mark.made <= released_; }
  double End(uint32_t stream) const { return ends_[stream]; }
  // The stream's next work begins no earlier than `time`.
  void MakeWait(uint32_t stream, double time);
  // The host waits for all work; held work ends then.
  void WaitForAll();
  // The host waits before it asks again. Held work ends where the host has waited too long in all.
  void Wait(double microseconds, double in_all);

  // A driver call; it takes as long as in the emulator.
  void Call(const char* name, uint64_t bytes = 0);
  // cuMemSetAccess: more pages take longer.
  void Open(size_t pages, uint64_t bytes);
  // cuMemUnmap of adjacent pages: one call that takes as long as one for each.
  void Unmap(size_t pages, uint64_t bytes);
  uint64_t calls() const { return calls_; }
  // Calls that make, map, open and unmap memory; the others order work.
  uint64_t memory_calls() const { return memory_calls_; }
  double driver_us() const { return driver_us_; }

  // When everything is done: the critical path through host and streams.
  double Finish() const;
  uint64_t streams() const { return ends_.size(); }

 private:
  void Spend(const char* call, double microseconds);
  // One stream's part.
  void LaunchOn(uint32_t stream, uint64_t bytes, const std::vector<uint32_t>& next_event);

  const ModelledWork work_;
  double now_ = 0;
  double released_ = -1;  // when held work was last released
  size_t index_ = 0;
  std::vector<double> ends_;                // by stream
  std::vector<std::deque<double>> queues_;  // for timed work: when the last operations end
  std::vector<uint32_t> next_event_;        // for held work: by event, the next event on its stream
  std::vector<uint32_t> next_of_other_;     // the same for an allocation's second stream
  uint64_t calls_ = 0;
  uint64_t memory_calls_ = 0;
  double driver_us_ = 0;
};

}  // namespace commpool::cli

#endif  // COMMPOOL_TOOLS_STRESS_SWEEP_MODELLED_DEVICE_H_
