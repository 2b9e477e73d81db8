// Where a program issued an operation: return addresses, which are cheap to take. Only a report turns them into text.
// It is a value: any thread may use one.
#pragma once

#include <memory>
#include <string>

namespace commpool::internal::emulator {

// PyTorch's allocators of device and pinned memory; commpool's library; PyTorch's process groups, which ask for
// themselves whether a collective is done.
enum class Asker { kAllocator, kPools, kProcessGroup };

// Owns one list of return addresses, shared with equal ones. Operations, blocks and reports hold it.
class CallStack {
 public:
  struct Walk;

  static CallStack Capture();

  // Returns the innermost callers outside this library in one line: "Function (module+0x1f) <- ...". Of commpool's
  // library and of NCCL it shows only the functions that programs call.
  std::string Describe() const;

  // Says whether this one is among the callers. The machine's lock guards what it remembers of each caller: to name one
  // is slow.
  bool IsOf(Asker asker) const;

 private:
  std::shared_ptr<const Walk> walk_;  // shared by all operations from one place
};

}  // namespace commpool::internal::emulator
