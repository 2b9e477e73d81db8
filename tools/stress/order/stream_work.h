// What the streams of a worker do: they take their time, fill blocks, and compare what is in them. A GPU takes the same
// calls as the emulator. One thread at a time; each call with the stream's device current.
//
// On a stream that captures it becomes part of the graph, which does it again at each replay.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>

#include "tools/stress/order/machine.h"

namespace commpool::cli::stress_order {

class StreamWork {
 public:
  // `at`: the byte of the first wrong word.
  using Wrong = std::function<void(uint64_t at, uint32_t found)>;

  explicit StreamWork(Machine& machine);
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

  // Waits for the devices. REQUIRES: before its end, and that nobody captures.
  void Finish() const;
  // `call` runs on the host when the stream comes to it, and calls no CUDA.
  Status Call(CUstream stream, std::function<void()> call);
  // Every whole word.
  Status Fill(CUstream stream, const MemoryRange& range, uint32_t value);
  // Words at both ends, and some between: as cheap for a large block.
  Status Compare(CUstream stream, const MemoryRange& range, uint32_t value, Wrong wrong);

 private:
  Status Check(CUresult result, const char* call) const {
    return internal::CheckCuda(machine_.driver(), result, {.call = call, .purpose = "work of a stream"});
  }

  Machine& machine_;
  internal::PinnedMemory copies_;
  size_t compared_ = 0;
  std::deque<std::function<void()>> calls_;  // they stay where they are
};

}  // namespace commpool::cli::stress_order
