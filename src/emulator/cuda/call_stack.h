// Where an operation was issued: return addresses, cheap to take, put into words only for a report. Values: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_CALL_STACK_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_CALL_STACK_H_

#include <array>
#include <cstddef>
#include <string>

namespace commpool::emulator {

class CallStack {
 public:
  static constexpr size_t kFrames = 24;  // of which the driver and NCCL take up to fifteen

  static CallStack Capture();

  // The innermost callers outside this library, in one line: "Function (module+0x1f) <- ...".
  std::string Describe() const;

 private:
  std::array<void*, kFrames> addresses_ = {};
  size_t count_ = 0;
};

}  // namespace commpool::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_CALL_STACK_H_
