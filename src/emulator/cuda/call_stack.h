// Where an operation was issued: return addresses, cheap to take, put into words only for a report. Values: any thread.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_CALL_STACK_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_CALL_STACK_H_

#include <memory>
#include <string>

namespace commpool::internal::emulator {

class CallStack {
 public:
  struct Walk;

  static CallStack Capture();

  // The innermost callers outside this library, in one line: "Function (module+0x1f) <- ...". Of commpool's library and
  // of NCCL only the functions that programs call.
  std::string Describe() const;

 private:
  std::shared_ptr<const Walk> walk_;  // shared by what was issued from one place
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_CALL_STACK_H_
