// Faults of the description: they need no line of code in the program.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class DeclaredFaults : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("devices=2,fail=cuEventCreate:1:999+cuMemAlloc:0:2:2"); }
};

TEST_F(DeclaredFaults, StrikeFromTheFirstCallOn) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuda().cuMemAlloc(&memory, kUnit), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda().cuMemAlloc(&memory, kUnit), CUDA_ERROR_OUT_OF_MEMORY);
  Allocate();
  MakeEvent();
  CUevent event = nullptr;
  EXPECT_EQ(cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_ERROR_UNKNOWN);
  MakeEvent();
}

}  // namespace
}  // namespace commpool::internal::testing
