// Where a program issued an operation: return addresses, which are cheap to take. Only a report turns them into text.
// It is a value: any thread may use one.
#pragma once

#include <memory>
#include <string>

namespace commpool::internal::emulator {

enum class Allocator { kPyTorchs, kPools };

// Owns one list of return addresses, shared with equal ones. Operations, blocks and reports hold it.
class CallStack {
 public:
  struct Walk;

  static CallStack Capture();

  // Returns the innermost callers outside this library in one line: "Function (module+0x1f) <- ...". Of commpool's
  // library and of NCCL it shows only the functions that programs call.
  std::string Describe() const;

  // Says whether an allocator is among the callers: PyTorch's, of device or pinned memory, or commpool's library. The
  // machine's lock guards what it remembers of each caller: to name one is slow.
  bool IsOf(Allocator allocator) const;

 private:
  std::shared_ptr<const Walk> walk_;  // shared by all operations from one place
};

}  // namespace commpool::internal::emulator
