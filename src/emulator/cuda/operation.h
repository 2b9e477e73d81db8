// One operation of a stream: what it touches, what it waits for, when it ran in virtual time.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_OPERATION_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_OPERATION_H_

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/emulator/cuda/call_stack.h"
#include "src/emulator/cuda/clock.h"
#include "src/emulator/cuda/stream_reach.h"
#include "src/emulator/extension.h"

namespace commpool::internal::emulator {

struct AnnouncedBlock;
struct Operation;

// What an event record leaves: done once everything before it in its stream is.
struct Marker {
  bool done = false;
  double time_us = 0;
  Clock clock;
  StreamReach reach;
};

// Host pointers of the declared ranges.
using Pointers = std::vector<void*>;

struct Operation {
  enum class State { kWaiting, kRunning, kDone };
  // An operation that runs code of the program may block: then it holds its stream, not its device.
  enum class Pace { kPrompt, kMayBlock };

  std::string name;
  std::vector<commpoolEmulatorRange> reads;
  std::vector<commpoolEmulatorRange> writes;
  double duration_us = 0;
  Pace pace = Pace::kPrompt;
  // Of a copy: one of these devices must have access. Empty for a kernel: its stream's device must.
  std::vector<int> copy_devices;

  // Runs on the device's worker. Exactly one of the two is set, or neither for markers and waits.
  std::function<void(const Pointers& reads, const Pointers& writes)> run;
  // Starts something that ends later, by Complete.
  using Start = std::function<void(commpoolEmulatorOperation handle, const Pointers& reads, const Pointers& writes,
                                   double start_us)>;
  Start start;
  // Of a captured operation that would start: makes the `start` of one replay; an empty one where it cannot be
  // repeated.
  std::function<Start()> repeat;
  // Then: under its ranges, where NCCL may have registered them.
  std::optional<std::vector<uint64_t>> captured_mappings;

  std::vector<std::shared_ptr<Operation>> after;  // of other streams: the legacy stream's order
  std::vector<std::shared_ptr<Marker>> waits;     // events that the stream was told to wait for
  std::shared_ptr<Marker> marker;                 // of an event record

  enum class Origin { kIssued, kReplayed };
  Origin origin = Origin::kIssued;
  int device = 0;
  uint64_t sequence = 0;    // submission order in the process
  double submitted_us = 0;  // the host's virtual time at submission
  double end_us = 0;
  State state = State::kWaiting;

  // The race checker's:
  uint64_t stream = 0;                // number of its stream
  std::shared_ptr<const Clock> host;  // what the host knew when it submitted it; null once it started
  Clock clock;                        // what came before it, and itself
  uint64_t component = 0;             // its stream's, in the clock
  CallStack issued_at;                // where it was submitted
  std::vector<std::shared_ptr<const AnnouncedBlock>> blocks;  // announced ones, in which its ranges begin
  std::set<uint64_t> reported_with;                           // sequences of operations that it was found to race with
  StreamReach reach;                                          // itself included

  bool Touches(CUdeviceptr address, uint64_t bytes) const {
    const auto overlaps = [&](const commpoolEmulatorRange& range) {
      return range.address < address + bytes && address < range.address + range.bytes;
    };
    return std::any_of(reads.begin(), reads.end(), overlaps) || std::any_of(writes.begin(), writes.end(), overlaps);
  }
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_OPERATION_H_
