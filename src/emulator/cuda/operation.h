// One operation of a stream: what it touches, what it waits for, and when it ran in virtual time.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <chrono>
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
class ObjectReferences;

// A record of an event. It is done when everything before it in its stream is done.
struct Marker {
  bool done = false;
  double time_us = 0;
  Clock clock;
  std::chrono::steady_clock::time_point done_at = {};
  StreamReach reach;
  std::shared_ptr<void> shown;  // while it exists, other processes wait for the record
};

// host pointers to the declared ranges
using Pointers = std::vector<void*>;

struct Operation {
  enum class State { kWaiting, kRunning, kDone };
  // An operation that runs the program's code may block. Then it holds its stream, but not its device.
  enum class Pace { kPrompt, kMayBlock };

  std::string name;
  std::vector<commpoolEmulatorRange> reads;
  std::vector<commpoolEmulatorRange> writes;
  double duration_us = 0;
  Pace pace = Pace::kPrompt;
  // For a copy: one of these devices must have access. Empty for a kernel: the stream's device must have it.
  std::vector<int> copy_devices;

  // Runs on the device's worker. An operation has either `run` or `start`; markers and waits have neither.
  std::function<void(const Pointers& reads, const Pointers& writes)> run;
  // Starts something that Complete ends later.
  using Start = std::function<void(commpoolEmulatorOperation handle, const Pointers& reads, const Pointers& writes,
                                   double start_us)>;
  Start start;
  // For a captured operation with `start`: makes the `start` of one replay, or an empty one if it cannot be repeated.
  std::function<Start()> repeat;
  // And the mappings under its ranges, if NCCL may have registered them.
  std::optional<std::vector<uint64_t>> captured_mappings;
  std::shared_ptr<ObjectReferences> objects;  // of the end of a graph's launch, which needs them
  bool is_kernel = false;                     // what cuGraphNodeGetType tells of the node

  std::vector<std::shared_ptr<Operation>> after;  // operations of other streams, by the legacy stream's order
  std::vector<std::shared_ptr<Marker>> waits;     // events that the stream was told to wait for
  std::shared_ptr<Marker> marker;                 // for an event record

  // The end of a block must come after what touched the block; nothing has to come after it.
  enum class Effect { kTouches, kEndsBlock };
  Effect effect = Effect::kTouches;
  enum class Origin { kIssued, kReplayed };
  Origin origin = Origin::kIssued;
  int device = 0;
  uint64_t sequence = 0;    // counts submissions of the process
  double submitted_us = 0;  // the host's virtual time at submission
  double end_us = 0;
  State state = State::kWaiting;

  // For the race checker:
  uint64_t stream = 0;                 // the stream's number
  std::shared_ptr<const Clock> host;   // what the host knew at submission; null after the start
  std::shared_ptr<const Clock> heard;  // what PyTorch's allocator knew then; null after the run began
  Clock clock;                         // everything before the operation, and the operation
  uint64_t component = 0;              // the stream's component in the clock
  CallStack issued_at;                 // where it was submitted
  const char* place = nullptr;         // the same in the program's words; null: unknown
  std::vector<std::shared_ptr<const AnnouncedBlock>> blocks;  // announced blocks in which its ranges begin
  std::set<uint64_t> reported_with;  // sequences of the operations that reports already named as racing with it
  StreamReach reach;                 // includes the operation

  bool Touches(CUdeviceptr address, uint64_t bytes) const {
    const auto overlaps = [&](const commpoolEmulatorRange& range) {
      return range.address < address + bytes && address < range.address + range.bytes;
    };
    return std::any_of(reads.begin(), reads.end(), overlaps) || std::any_of(writes.begin(), writes.end(), overlaps);
  }
};

}  // namespace commpool::internal::emulator
