// Times NCCL's collectives on this rank's device, while the ranks keep in step. One thread.
#pragma once

#include <cstdint>

#include "commpool/status.h"
#include "tools/cli/ranks.h"

namespace commpool::cli {

enum class Collective { kAllReduce, kAllGather, kReduceScatter };
enum class Place { kOut, kIn };  // out of place, or in place

const char* Name(Collective collective);  // "all-reduce"
const char* Name(Place place);            // "out of place"

struct BufferPair {
  void* sent = nullptr;
  void* received = nullptr;
};

// An event with timing.
class TimedEvent {
 public:
  explicit TimedEvent(const internal::Driver& driver) : driver_(driver) {
    driver_.cuda.cuEventCreate(&event_, CU_EVENT_DEFAULT);
  }
  ~TimedEvent() { driver_.cuda.cuEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  CUevent get() const { return event_; }

 private:
  const internal::Driver& driver_;
  CUevent event_ = nullptr;
};

class CollectiveTimer {
 public:
  CollectiveTimer(const Ranks& ranks, const RankDevice& device) : ranks_(ranks), device_(device) {}

  // Microseconds for one collective of floats over both buffers of `bytes`; its larger side takes a whole buffer. The
  // slowest rank's mean over a batch, after a warm-up.
  Result<double> Time(Collective collective, Place place, uint64_t bytes, const BufferPair& buffers) const;
  // Launches one collective on this rank's stream.
  Status Launch(Collective collective, Place place, uint64_t bytes, const BufferPair& buffers) const;
  // How many batches to measure: modelled times do not vary.
  int rounds() const { return emulated() ? 1 : 7; }
  bool emulated() const { return device_.driver->kind == internal::DriverChoice::kEmulated; }

 private:
  int Batch(uint64_t bytes) const;

  const Ranks& ranks_;
  const RankDevice& device_;
};

}  // namespace commpool::cli
