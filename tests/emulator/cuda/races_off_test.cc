// races=no: the emulator looks for no races, and keeps no accesses.
#include "tests/emulator/cuda/machine_fixture.h"

namespace commpool::internal::testing {
namespace {

class RacesOff : public MachineTest {
 protected:
  static void SetUpTestSuite() { DeclareMachine("races=no"); }
};

TEST_F(RacesOff, ReportsNothing) {
  const CUdeviceptr memory = Allocate();
  COMMPOOL_EXTENSION(commpoolEmulatorBlockAllocated)(memory, 512, nullptr, "grads");
  COMMPOOL_EXTENSION(commpoolEmulatorBlockFreed)(memory);
  EXPECT_EQ(Launch(MakeStream(), {{memory, kUnit}}), CUDA_SUCCESS);
  EXPECT_EQ(Launch(MakeStream(), {{memory, kUnit}}), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(TakeReports(), std::vector<std::string>());
}

TEST_F(RacesOff, GivesOperationsAnEmptyClock) {
  const commpoolEmulatorStart start = [](void* bytes, commpoolEmulatorOperation operation, const void* const*,
                                         void* const*, double start_us) {
    *static_cast<size_t*>(bytes) = COMMPOOL_EXTENSION(commpoolEmulatorClock)(operation, nullptr, 0);
    COMMPOOL_EXTENSION(commpoolEmulatorJoinClock)(operation, nullptr, 0);
    COMMPOOL_EXTENSION(commpoolEmulatorComplete)(operation, start_us, CUDA_SUCCESS);
  };
  size_t bytes = 1;
  const commpoolEmulatorAccess access = {};
  ASSERT_EQ(COMMPOOL_EXTENSION(commpoolEmulatorEnqueue)(MakeStream(), &access, start, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 0u);
}

}  // namespace
}  // namespace commpool::internal::testing
